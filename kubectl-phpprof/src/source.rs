//! Where a profile comes from: a file, a request of the cluster, or the store if its request is
//! gone.
//!
//! Invariant: a profile from here is complete; files and answers are bounded before they are
//! decoded.

use std::io::Read;

use phpprof_profile::timeline::{self, Timeline};
use phpprof_profile::{DecodeLimits, Format, MAX_FRAMES, MAX_LABELS, Profile, decode};

use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::request::RequestView;
use crate::results::{self, ResultPart};
use crate::stored::{self, AskedName, NamedResult};

/// Bounds for a user's machine, larger than the operator's.
const LIMITS: DecodeLimits = DecodeLimits {
    compressed_bytes: 256 << 20,
    decompressed_bytes: 1 << 30,
    memory_bytes: 2 << 30,
    samples: 10_000_000,
    depth: MAX_FRAMES,
    labels: MAX_LABELS,
    // The names of other languages' functions may be long.
    string: 256 << 10,
};

/// A profile, and names for it.
#[derive(Debug)]
pub struct ProfileSource {
    pub profile: Profile,
    pub title: String,
    /// The base name of files made from it, unless the user gives another.
    pub stem: String,
}

/// Whether the name is a file: it exists, or it cannot be the name of a request. `pprof/a.b` is
/// always a request.
pub fn is_file(name: &str) -> bool {
    let is_named_as_a_request = request_name(name) != name;
    !is_named_as_a_request && (std::path::Path::new(name).is_file() || !is_request_name(name))
}

/// Whether it is a DNS subdomain, optionally with the beginning of a uid.
pub fn is_request_name(name: &str) -> bool {
    let letters = |text: &str, more: &str| {
        let mut all = text.chars();
        all.all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || more.contains(it))
    };
    let AskedName { name, uid } = AskedName::of(name);
    letters(name, "-.") && !name.starts_with('-') && uid.is_none_or(|uid| letters(uid, "-"))
}

/// The failure of a request that was not found. If the name looks like a file's, the hint also
/// mentions files.
fn or_file(name: &str, failure: Failure) -> Failure {
    let looks_like_a_file = name.contains('.') && request_name(name) == name;
    if !looks_like_a_file || ![Exit::NotFound, Exit::Unreachable].contains(&failure.exit) {
        return failure;
    }
    Failure {
        exit: match Format::of_name(name) {
            Some(_) => Exit::NotFound,
            None => failure.exit,
        },
        message: format!(
            "{name}: no such file here; as a request: {}",
            failure.message
        ),
        hint: format!(
            "correct the file's name; if you meant a request: {}",
            failure.hint
        ),
    }
}

/// The name without its prefix: `pprof/first` is `first`.
pub fn request_name(name: &str) -> &str {
    [
        "pprof/",
        "profilerequest/",
        "profilerequests/",
        "profilerequest.phpprof.dev/",
    ]
    .into_iter()
    .find_map(|prefix| name.strip_prefix(prefix))
    .unwrap_or(name)
}

pub async fn load(
    global: &Global,
    name: &str,
    pod: Option<&str>,
) -> Result<ProfileSource, Failure> {
    if is_file(name) {
        if pod.is_some() {
            return Err(Failure::new(
                Exit::Usage,
                "--pod is for requests; a file has its pods in the label pod",
                "use --label pod=NAME",
            ));
        }
        return of_bytes(&read(name)?, name.rsplit('/').next().unwrap_or(name));
    }
    let loaded = match Cluster::of(global).await {
        Ok(cluster) => of_request(&cluster, name, pod).await,
        Err(failure) => Err(failure),
    };
    loaded.map_err(|failure| or_file(name, failure))
}

pub async fn of_request(
    cluster: &Cluster,
    name: &str,
    pod: Option<&str>,
) -> Result<ProfileSource, Failure> {
    let name = request_name(name);
    let bytes = fetch(cluster, name, ResultPart::of_pod(pod)).await?;
    let title = match pod {
        Some(pod) => format!("{}/{name}, pod {pod}", cluster.namespace),
        None => format!("{}/{name}", cluster.namespace),
    };
    let mut source = of_bytes(&bytes, &title)?;
    source.stem = pod.map_or_else(|| name.to_owned(), |pod| format!("{name}.{pod}"));
    Ok(source)
}

/// The merged profile of an existing request.
pub async fn merged(
    cluster: &Cluster,
    request: &RequestView<'_>,
) -> Result<ProfileSource, Failure> {
    let bytes = results::fetch(cluster, request, ResultPart::Profile).await?;
    of_bytes(&bytes, &request.name())
}

/// The timeline of a request, for its page; `None` for a file, or if there is none.
pub async fn timeline_of(global: &Global, name: &str) -> Option<Timeline> {
    let list = if is_file(name) {
        None
    } else {
        list_of(global, name).await.ok()
    };
    timeline::decode(&list?).ok()
}

/// A file of a request that exists or is stored.
async fn fetch(cluster: &Cluster, name: &str, part: ResultPart<'_>) -> Result<Vec<u8>, Failure> {
    let named = stored::named(cluster, name).await?;
    part_of(cluster, &named, name, part).await
}

/// The same of what the name refers to.
pub async fn part_of(
    cluster: &Cluster,
    named: &NamedResult,
    name: &str,
    part: ResultPart<'_>,
) -> Result<Vec<u8>, Failure> {
    match named {
        NamedResult::Request(object) => {
            results::fetch(cluster, &RequestView::of(object), part).await
        }
        NamedResult::Stored(stored) => {
            let (entry, note) = stored.find(AskedName::of(name))?;
            // The note was already printed with the page's first file.
            if part != ResultPart::Requests {
                eprintln!("{note}");
            }
            stored.fetch(cluster, entry, part).await
        }
    }
}

/// The list of requests for a name or from a file, not decoded.
pub async fn list_of(global: &Global, name: &str) -> Result<Vec<u8>, Failure> {
    if is_file(name) {
        return read(name);
    }
    let fetched = match Cluster::of(global).await {
        Ok(cluster) => fetch(&cluster, request_name(name), ResultPart::Requests).await,
        Err(failure) => Err(failure),
    };
    fetched.map_err(|failure| or_file(name, failure))
}

pub fn of_bytes(bytes: &[u8], title: &str) -> Result<ProfileSource, Failure> {
    let profile = decode(bytes, &LIMITS).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("{title} is not a profile: {error}"),
            "use a pprof file (.pb.gz) from phpprof or the store",
        )
    })?;
    let stem = [".pb.gz", ".pprof.gz", ".pprof", ".pb"]
        .into_iter()
        .find_map(|end| title.strip_suffix(end))
        .unwrap_or(title);
    Ok(ProfileSource {
        profile,
        title: title.to_owned(),
        stem: stem.to_owned(),
    })
}

/// The bytes of a file, up to the bound of a profile.
pub fn read(path: &str) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| Failure::of_file(path, &error);
    let mut bytes = Vec::new();
    let bound = LIMITS.compressed_bytes as u64 + 1;
    if path == "-" {
        std::io::stdin()
            .lock()
            .take(bound)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(bound).read_to_end(&mut bytes).map_err(failed)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_requests_are_told_apart() {
        for file in ["./web", "/tmp/web", "-", "Cargo.toml", "Web"] {
            assert!(is_file(file), "{file}");
        }
        for request in [
            "web-x2x4z",
            "web.v2",
            "web@0b1c",
            "pprof/web",
            "pprof/Cargo.toml",
            "profilerequest.phpprof.dev/a.b",
        ] {
            assert!(!is_file(request), "{request}");
        }
        assert_eq!(request_name("pprof/web"), "web");
    }

    #[test]
    fn a_file_without_profile_is_refused_with_hint() {
        let failure = of_bytes(b"<html>", "page.html").unwrap_err();
        assert_eq!(
            failure.message,
            "page.html is not a profile: unknown wire type 4"
        );
        assert!(failure.hint.contains("pprof"));
    }
}
