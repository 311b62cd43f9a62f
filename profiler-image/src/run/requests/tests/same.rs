//! Which samples show one request, and which show another one.

use super::*;
use crate::run::time::unix_now;

/// A php-fpm worker, the samples of it, and what is known of its requests.
struct Watched {
    scene: Scene,
    sampler: StackSampler,
    worker: Worker,
    requests: RunRequests,
    served: Served,
}

impl Watched {
    /// It serves a request of this time of the engine, which a sample has shown; 0 if the time is
    /// not set.
    fn serving(path: &str, time: f64) -> Self {
        let mut scene = Scene::frameless("strpos", IS_NULL);
        scene.serve("GET", path, "/srv/www/index.php");
        scene.set_request_time(time);
        let all = asked("Method,Route", RequestFilter::default());
        let mut watched = Self {
            sampler: StackSampler::new(),
            worker: worker(&scene, Some(&all)),
            requests: RunRequests::new(&all),
            served: Served::default(),
            scene,
        };
        assert_eq!(watched.number(), 1);
        // The first sample takes long.
        watched.requests.counts.changed = 0;
        watched
    }

    /// Takes a sample; returns the number of its request.
    fn number(&mut self) -> u32 {
        sample(
            &mut self.sampler,
            &mut self.worker,
            &mut self.requests,
            &mut self.served,
        );
        self.served.number()
    }

    fn serve(&mut self, method: &str, path: &str) {
        self.scene.serve(method, path, "/srv/www/index.php");
    }

    fn watch(&mut self) -> &mut RequestWatch {
        self.worker.reader.request.as_mut().unwrap()
    }

    /// The reads of the next sample fail.
    fn fail(&mut self) {
        self.watch().begin();
        self.watch().lost();
    }

    /// Reads the request once more for the same sample.
    fn read(&mut self, time: f64) {
        let memory = Arc::clone(self.worker.reader.memory.memory());
        let mut pieces: Vec<Piece<'_>> = self.watch().pieces().collect();
        memory.gather(&mut pieces).unwrap();
        drop(pieces);
        self.watch().took(time.to_bits(), false);
    }

    /// Looks at the reads of a sample; returns whether its request is certain.
    fn look(&mut self) -> bool {
        self.requests
            .look(&mut self.served, &mut self.worker.reader, now())
    }

    fn began(&self) -> Option<u64> {
        self.served.current.and_then(|current| current.began)
    }
}

/// No time, and one that is set.
fn times() -> [f64; 2] {
    [0.0, unix_now() - 10.0]
}

/// The numbers of a scenario's samples. Another process may have the CPU in the middle of a read,
/// after which a request without a time gets another number. So the scenario is tried until only
/// the expected reads were uncertain.
fn numbers<const SAMPLES: usize>(
    uncertain: u64,
    scenario: impl Fn() -> (Watched, [u32; SAMPLES]),
) -> [u32; SAMPLES] {
    for _ in 0..100 {
        let (watched, numbers) = scenario();
        if watched.requests.counts.changed == uncertain {
            return numbers;
        }
    }
    panic!("every time, a read was held up")
}

#[test]
fn failed_read_keeps_number_and_age() {
    for time in times() {
        let numbers = numbers(1, || {
            let mut watched = Watched::serving("/a", time);
            let began = watched.began();
            watched.fail();
            let second = watched.number();
            let counted = watched.requests.counts.requests as u32;
            // The request of the sample whose read failed is not certain.
            watched.fail();
            assert!(!watched.look());
            let third = watched.number();
            assert!(third > 1 || began.is_some() && watched.began() <= began);
            (watched, [second, counted, third])
        });
        assert_eq!(numbers, [1; 3], "{time}");
    }
}

#[test]
fn request_after_a_failed_read_is_new() {
    let numbers = numbers(0, || {
        let mut watched = Watched::serving("/shop/17", 0.0);
        watched.fail();
        watched.serve("GET", "/shop/18");
        let second = watched.number();
        watched.fail();
        watched.requests.idle(&mut watched.served, now());
        let third = watched.number();
        (watched, [second, third])
    });
    assert_eq!(numbers, [2, 3]);
}

#[test]
fn differing_reads_are_recognised_by_time() {
    for (time, expected) in times().into_iter().zip([2, 1]) {
        let numbers = numbers(1, || {
            let mut watched = Watched::serving("/a", time);
            watched.watch().begin();
            watched.read(time);
            watched.serve("GET", "/b");
            watched.read(time);
            assert!(!watched.look());
            watched.serve("GET", "/a");
            let second = watched.number();
            (watched, [second])
        });
        assert_eq!(numbers, [expected], "{time}");
    }
}

/// A request that a sample shows with this path, and the next one with the other: it keeps its
/// number, and has both labels.
#[track_caller]
fn keeps_number_and_labels(path: &str, later: &str) {
    let mut watched = Watched::serving(path, unix_now() - 10.0);
    watched.serve("GET", later);
    assert_eq!(watched.number(), 1);
    let fate = watched
        .requests
        .fate(&mut watched.served, stack(), now(), true);
    let expected = [("method", "GET".to_owned()), ("route", "/a".to_owned())];
    assert_eq!(shown(&watched.requests, fate), expected);
}

#[test]
fn request_keeps_its_number_when_more_is_known() {
    keeps_number_and_labels("", "/a");
}

#[test]
fn request_keeps_its_labels_when_less_is_known() {
    keeps_number_and_labels("/a", "");
}

#[test]
fn words_or_time_tell_requests_apart() {
    let numbers = numbers(0, || {
        let mut watched = Watched::serving("/shop/17", 0.0);
        watched.serve("GET", "/shop/18");
        let words = watched.number();
        let time = unix_now();
        watched.scene.set_request_time(time - 9.0);
        let same = watched.number();
        watched.scene.set_request_time(time - 8.0);
        let later = watched.number();
        // What was known cannot become something else.
        watched.serve("POST", "/shop/18");
        let method = watched.number();
        (watched, [words, same, later, method])
    });
    assert_eq!(numbers, [2, 2, 3, 4]);
}
