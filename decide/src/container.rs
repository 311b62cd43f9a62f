//! Which container of a pod runs PHP, if nobody has named it.
//!
//! Invariant: it never guesses. It finds exactly one container, or says why not, with the names of
//! all.

use std::fmt;

use phpprof_crds::{ContainerChoice, ProfileTarget};

use crate::pod::{ContainerView, PodView};

/// The words that name what runs PHP. A version may follow one, as in `php82`.
const PHP: [&str; 5] = ["php", "fpm", "frankenphp", "roadrunner", "rr"];
/// The words that name what watches PHP and does not run it, as in `php-fpm-exporter`.
const BESIDE_PHP: [&str; 7] = [
    "exporter",
    "metrics",
    "prometheus",
    "statsd",
    "healthcheck",
    "log",
    "logs",
];

/// The container to profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundContainer<'a> {
    /// It may not run.
    pub container: &'a ContainerView,
    /// Why this one.
    pub choice: ContainerChoice,
}

/// Why no container is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// The pod has no container of this name.
    NoSuchContainer(String),
    /// Nobody has named a container of this pod, and its names do not tell.
    Ambiguous {
        /// The pod's name.
        pod: String,
        /// The names of its containers.
        all: Vec<String>,
        /// Those that are named after PHP: none, or several.
        after_php: Vec<String>,
    },
}

impl fmt::Display for NotFound {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotFound::NoSuchContainer(name) => write!(to, "the pod has no container {name}"),
            NotFound::Ambiguous {
                pod,
                all,
                after_php,
            } => {
                write!(to, "pod {pod} has the containers {}", all.join(", "))?;
                match after_php.as_slice() {
                    [] => write!(to, ", and no name or image says which one runs PHP"),
                    several => write!(
                        to,
                        ", and according to their names or images, {} may run PHP",
                        several.join(" and ")
                    ),
                }
            }
        }
    }
}

/// The container that the request names, else the one that the pod's annotation names, else the
/// only one, else the only one whose name or image names PHP.
///
/// # Errors
/// There is no such container, or not exactly one.
pub fn php_container<'a>(
    target: &ProfileTarget,
    pod: &'a PodView,
) -> Result<FoundContainer<'a>, NotFound> {
    let named = |name: &String, choice| match pod.container(name) {
        Some(container) => Ok(FoundContainer { container, choice }),
        None => Err(NotFound::NoSuchContainer(name.clone())),
    };
    if let Some(name) = &target.container_name {
        return named(name, ContainerChoice::Request);
    }
    if let Some(name) = &pod.default_container {
        return named(name, ContainerChoice::Annotation);
    }
    if let [container] = pod.containers.as_slice() {
        let choice = ContainerChoice::Only;
        return Ok(FoundContainer { container, choice });
    }
    by_name(pod)
}

fn by_name(pod: &PodView) -> Result<FoundContainer<'_>, NotFound> {
    let of_php = |names_php: fn(&ContainerView) -> Option<ContainerChoice>| {
        let of_php = pod.containers.iter().filter_map(move |container| {
            let choice = names_php(container)?;
            Some(FoundContainer { container, choice })
        });
        of_php.collect::<Vec<_>>()
    };
    // A folder of a registry often has the images of a whole pod, so it tells only where nothing
    // else does.
    let mut found = of_php(own_name);
    if found.is_empty() {
        found = of_php(folder);
    }
    match found.as_slice() {
        [one] => Ok(*one),
        none_or_several => {
            let name = |container: &ContainerView| container.name.clone();
            Err(NotFound::Ambiguous {
                pod: pod.name.clone(),
                all: pod.containers.iter().map(name).collect(),
                after_php: none_or_several
                    .iter()
                    .map(|it| name(it.container))
                    .collect(),
            })
        }
    }
}

/// Whether the name of the container, or of its image, names PHP.
fn own_name(container: &ContainerView) -> Option<ContainerChoice> {
    let image = repository(&container.image).next().unwrap_or_default();
    if names_another(container) {
        None
    } else if has_word(&container.name, &PHP) {
        Some(ContainerChoice::Name)
    } else {
        has_word(image, &PHP).then_some(ContainerChoice::Image)
    }
}

/// Whether the folder of the container's image names PHP, as in `shop/php/app`.
fn folder(container: &ContainerView) -> Option<ContainerChoice> {
    let folder = repository(&container.image).nth(1)?;
    (!names_another(container) && has_word(folder, &PHP)).then_some(ContainerChoice::Image)
}

fn names_another(container: &ContainerView) -> bool {
    let image = repository(&container.image).next().unwrap_or_default();
    has_word(&container.name, &BESIDE_PHP) || has_word(image, &BESIDE_PHP)
}

/// The parts of an image's path, the last first, without registry, tag and digest
/// (github.com/distribution/reference).
fn repository(image: &str) -> impl Iterator<Item = &str> {
    let image = image.split('@').next().unwrap_or_default();
    // A part with a point or a port is a registry only if it is the first of several.
    let path = match image.split_once('/') {
        Some((first, path)) if first.contains(['.', ':']) || first == "localhost" => path,
        _ => image,
    };
    let mut parts = path.rsplit('/');
    let last = parts.next().and_then(|last| last.split(':').next());
    last.into_iter().chain(parts)
}

/// Whether one of the words stands in the text, between what is neither a letter nor a digit.
/// Digits may end it.
fn has_word(text: &str, words: &[&str]) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit()))
        .any(|word| words.iter().any(|known| known.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests;
