//! The fate of samples by their request, and the cost of reading a request, in the memory of this
//! test.

mod same;
mod young;

use std::sync::Arc;

use phpprof_zend::memory::{Memory, Piece};
use phpprof_zend::request::RequestSource;
use phpprof_zend::testing::{Counted, IS_NULL};

use super::*;
use crate::read::request_watch::{RequestSeen, RequestWatch};
use crate::read::worker::Worker;
use crate::request::asked::{RequestFilter, labels};
use crate::run::testing::now;
use crate::sample::tests::Scene;
use crate::sample::{StackSampler, TurnOutcome};
use crate::stack::names::FunctionNames;

const MS: u64 = SECOND / 1000;

fn asked(names: &str, filter: RequestFilter) -> RequestSettings {
    RequestSettings {
        labels: labels(names).unwrap(),
        filter,
        ..RequestSettings::default()
    }
}

fn stack() -> SummedStack {
    SummedStack::of_phase(FunctionNames::COMPILING)
}

/// A worker that began to serve this request at that time.
fn serving(requests: &mut RunRequests, method: &str, path: &str, began: u64) -> Served {
    let known = requests.known(&HttpRequest {
        method: Some(method.to_owned()),
        path: Some(path.to_owned()),
        ..HttpRequest::default()
    });
    let mut served = Served::default();
    requests.begin(&mut served, known, RequestSource::FastCgi, None, began);
    served
}

fn shown(requests: &RunRequests, fate: Fate) -> Vec<(&'static str, String)> {
    let Fate::Summed(_, sample) = fate else {
        panic!("{fate:?}")
    };
    let labels = requests.values.table.labels(sample.labels);
    labels.map(|(key, value)| (key, value.to_owned())).collect()
}

#[test]
fn sample_has_its_requests_labels_and_age() {
    let mut requests =
        RunRequests::new(&asked("Method,Route,RequestAge", RequestFilter::default()));
    let mut served = serving(&mut requests, "GET", "/shop/17", 1000 * MS);
    let bands = [
        (1049, "<50ms"),
        (1050, "<200ms"),
        (1200, "<1s"),
        (2000, "<5s"),
        (6000, ">=5s"),
    ];
    for (at, band) in bands {
        let fate = requests.fate(&mut served, stack(), at * MS, true);
        let expected = [
            ("method", "GET".to_owned()),
            ("route", "/shop/{id}".to_owned()),
            ("request_age", band.to_owned()),
        ];
        assert_eq!(shown(&requests, fate), expected);
    }
}

#[test]
fn uncertain_request_gives_no_labels() {
    let mut requests = RunRequests::new(&asked("Route", RequestFilter::default()));
    let mut served = serving(&mut requests, "GET", "/a", 0);
    let fate = requests.fate(&mut served, stack(), 1, false);
    assert_eq!(shown(&requests, fate), []);
    let fate = requests.fate(&mut Served::default(), stack(), 1, true);
    assert_eq!(shown(&requests, fate), []);
    assert_eq!((requests.counts.unknown, requests.counts.undecided), (1, 0));
    let methods = vec!["GET".to_owned()];
    let filter = RequestFilter {
        methods,
        ..RequestFilter::default()
    };
    let mut requests = RunRequests::new(&asked("", filter));
    let mut served = serving(&mut requests, "GET", "/a", 0);
    assert_eq!(requests.fate(&mut served, stack(), 1, false), Fate::Dropped);
    assert_eq!(requests.counts.undecided, 1);
    assert!(matches!(
        requests.fate(&mut served, stack(), 1, true),
        Fate::Summed(..)
    ));
    let mut other = serving(&mut requests, "POST", "/a", 0);
    assert_eq!(requests.fate(&mut other, stack(), 1, true), Fate::Dropped);
    assert_eq!(requests.counts.filtered, 1);
}

/// A php-fpm worker in the memory of this test, with or without a watch of its requests.
fn worker(scene: &Scene, asked: Option<&RequestSettings>) -> Worker {
    let mut worker = Worker::new(scene.process().into());
    worker.reader.request = asked.map(|asked| RequestWatch::new(&worker.process, asked.wanted()));
    worker
}

/// Takes a sample, and determines its request.
fn sample(
    sampler: &mut StackSampler,
    worker: &mut Worker,
    requests: &mut RunRequests,
    served: &mut Served,
) {
    let outcome = sampler.sample(worker, now());
    assert!(matches!(outcome, TurnOutcome::Sample(_)), "{outcome:?}");
    // Another process may have had the CPU between two pieces, so this is tried repeatedly.
    for _ in 0..100 {
        if requests.look(served, &mut worker.reader, now()) {
            return;
        }
        sampler.sample(worker, now());
    }
    panic!("the request never was the same")
}

#[test]
fn request_is_read_once_until_another() {
    let mut scene = Scene::frameless("strpos", IS_NULL);
    scene.serve("GET", "/shop/17?token=SECRET", "/srv/www/index.php");
    let all = asked("Method,Route,Script", RequestFilter::default());
    let (mut requests, mut served) = (RunRequests::new(&all), Served::default());
    let (mut sampler, mut worker) = (StackSampler::new(), worker(&scene, Some(&all)));
    let mut next = |requests: &mut RunRequests, served: &mut Served| {
        sample(&mut sampler, &mut worker, requests, served);
        requests.counts.requests
    };
    assert_eq!(next(&mut requests, &mut served), 1);
    let reads = requests.counts.reads;
    (0..9).for_each(|_| _ = next(&mut requests, &mut served));
    assert_eq!(
        (requests.counts.requests, requests.counts.reads),
        (1, reads)
    );
    // After a wait, an equal request is another one.
    requests.idle(&mut served, now());
    assert_eq!(next(&mut requests, &mut served), 2);
    assert_eq!(requests.counts.reads, reads);
    scene.serve("GET", "/shop/17/cart", "/srv/www/index.php");
    assert_eq!(next(&mut requests, &mut served), 3);
    let fate = requests.fate(&mut served, stack(), now(), true);
    let expected = [
        ("method", "GET".to_owned()),
        ("route", "/shop/{id}/cart".to_owned()),
        ("script", "www/index.php".to_owned()),
    ];
    assert_eq!(shown(&requests, fate), expected);
}

/// From 0 to a value is not a new request; from one value to another, or to 0, is.
#[test]
fn late_time_tells_equal_requests_apart() {
    let mut scene = Scene::frameless("strpos", IS_NULL);
    scene.serve("GET", "/a", "/srv/www/index.php");
    let all = asked("RequestAge", RequestFilter::default());
    let (mut requests, mut served) = (RunRequests::new(&all), Served::default());
    let (mut sampler, mut worker) = (StackSampler::new(), worker(&scene, Some(&all)));
    let mut counted = Vec::new();
    for time in [0.0, 5.0, 5.0, 7.0, 0.0] {
        scene.set_request_time(time);
        sample(&mut sampler, &mut worker, &mut requests, &mut served);
        counted.push(requests.counts.requests);
    }
    assert_eq!(counted, [1, 1, 1, 2, 3]);
}

/// Between the read of the stack and that of the request, the worker may have begun the next
/// request.
#[test]
fn held_up_read_shows_no_new_request() {
    let mut scene = Scene::frameless("strpos", IS_NULL);
    scene.serve("GET", "/a", "/srv/www/index.php");
    let all = asked("Route", RequestFilter::default());
    let mut worker = worker(&scene, Some(&all));
    let memory = Arc::clone(worker.reader.memory.memory());
    let watch = worker.reader.request.as_mut().unwrap();
    for (was_held_up, expected) in [(true, RequestSeen::Changing), (false, RequestSeen::Other)] {
        watch.begin();
        let mut pieces: Vec<Piece<'_>> = watch.pieces().collect();
        memory.gather(&mut pieces).unwrap();
        drop(pieces);
        watch.took(0, was_held_up);
        assert_eq!(watch.seen(), expected);
    }
}

#[test]
fn request_costs_eight_gathers_at_most() {
    let mut scene = Scene::frameless("strpos", IS_NULL);
    scene.serve("GET", "/shop/17?token=SECRET", "/srv/www/index.php");
    let all = asked(
        "Method,Route,Script,RequestAge,TraceID",
        RequestFilter::default(),
    );
    let (mut sampler, mut worker) = (StackSampler::new(), worker(&scene, Some(&all)));
    let mut gathers = 0;
    // A slow read is discarded, so this is tried repeatedly.
    for _ in 0..100 {
        sampler.sample(&mut worker, now());
        let memory = Arc::clone(worker.reader.memory.memory());
        let memory = Counted::new(&*memory);
        let read = worker.reader.request.as_mut().unwrap().read(&memory);
        gathers = memory.calls();
        assert!((2..=8).contains(&gathers), "{gathers} gathers");
        if read.is_ok_and(|request| request.is_some()) {
            break;
        }
    }
    assert!(gathers > 0);
    assert!(!RequestSettings::default().is_on());
    assert!(super::tests::worker(&scene, None).reader.request.is_none());
}

#[test]
fn told_has_the_document_roots_of_kept_requests() {
    let mut requests = RunRequests::new(&asked(
        "Route",
        RequestFilter {
            path_prefix: Some("/shop".to_owned()),
            ..RequestFilter::default()
        },
    ));
    for number in 0..2 * MAX_ROOTS {
        for (path, folder) in [("/shop", "a"), ("/blog", "b")] {
            requests.known(&HttpRequest {
                path: Some(path.to_owned()),
                root: Some(format!("/srv/{folder}{number}")),
                ..HttpRequest::default()
            });
        }
    }
    let roots = requests.told().unwrap().document_roots;
    assert_eq!(roots.len(), MAX_ROOTS);
    assert!(roots.iter().all(|root| root.starts_with("/srv/a")));
}

/// The label belongs to the request of the stack, or there is none.
#[test]
fn request_changed_before_reading_is_not_told() {
    let mut scene = Scene::frameless("strpos", IS_NULL);
    scene.serve("GET", "/a", "/srv/www/index.php");
    scene.set_request_time(5.0);
    let all = asked("Route", RequestFilter::default());
    let (mut requests, mut served) = (RunRequests::new(&all), Served::default());
    let (mut sampler, mut worker) = (StackSampler::new(), worker(&scene, Some(&all)));
    // A delayed read shows nothing for certain.
    let shows_it = (0..100).any(|_| {
        sampler.sample(&mut worker, now());
        worker.reader.request.as_mut().map(RequestWatch::seen) == Some(RequestSeen::Other)
    });
    assert!(shows_it);
    scene.serve("GET", "/b", "/srv/www/index.php");
    scene.set_request_time(6.0);
    assert!(!requests.look(&mut served, &mut worker.reader, now()));
    assert_eq!((requests.counts.changed, requests.counts.requests), (1, 0));
    assert!(served.current.is_none());
}
