//! Which container is found, by names and images as people have them.

use super::*;

/// A pod with these containers: name, or name=image.
fn pod(containers: &str) -> PodView {
    let container = |text: &str| {
        let (name, image) = text.split_once('=').unwrap_or((text, "busybox"));
        ContainerView {
            name: name.to_owned(),
            image: image.to_owned(),
            ..ContainerView::default()
        }
    };
    PodView {
        name: "web".to_owned(),
        containers: containers.split(' ').map(container).collect(),
        ..PodView::default()
    }
}

fn found(target: &ProfileTarget, pod: &PodView) -> String {
    match php_container(target, pod) {
        Ok(found) => format!("{} {:?}", found.container.name, found.choice),
        Err(why) => why.to_string(),
    }
}

/// `expected` is the container and why, or the end of the refusal.
#[track_caller]
fn check(containers: &str, expected: &str) {
    let found = found(&ProfileTarget::default(), &pod(containers));
    assert!(found.ends_with(expected), "{containers}: {found}");
}

const NONE: &str = "and no name or image says which one runs PHP";

#[test]
fn php_container_prefers_request_then_annotation() {
    let mut pod = pod("nginx php-fpm app");
    let named = |name: &str| ProfileTarget {
        container_name: Some(name.to_owned()),
        ..ProfileTarget::default()
    };
    assert_eq!(found(&named("app"), &pod), "app Request");
    assert_eq!(found(&named("no"), &pod), "the pod has no container no");
    pod.default_container = Some("nginx".to_owned());
    assert_eq!(found(&ProfileTarget::default(), &pod), "nginx Annotation");
    assert_eq!(found(&named("app"), &pod), "app Request");
    pod.default_container = Some("gone".to_owned());
    let missing = found(&ProfileTarget::default(), &pod);
    assert_eq!(missing, "the pod has no container gone");
}

#[test]
fn php_container_the_only_one_whatever_its_name() {
    check("app", "app Only");
    check("php-fpm-exporter", "php-fpm-exporter Only");
}

#[test]
fn php_container_by_its_name() {
    check("nginx php-fpm", "php-fpm Name");
    check("nginx fpm", "fpm Name");
    check("php app", "php Name");
    check("istio-proxy my-php82-app", "my-php82-app Name");
    check("nginx PHP", "PHP Name");
    check("rr sidecar", "rr Name");
    check("envoy php8", "php8 Name");
    check("envoy roadrunner-2", "roadrunner-2 Name");
    check("frankenphp mercure", "frankenphp Name");
}

#[test]
fn php_container_by_its_image() {
    check("web=nginx:1.27 app=php:8.2-fpm", "app Image");
    check("web app=docker.io/library/php", "app Image");
    check("web app=dunglas/frankenphp:1-php8.4", "app Image");
    check(
        "web app=registry:5000/shop/php8.2-fpm_prod@sha256:aa",
        "app Image",
    );
    check("web app=localhost/rr", "app Image");
    check(
        "web app=ghcr.io/roadrunner-server/roadrunner:2025",
        "app Image",
    );
    // The tag is not part of the name: `8.2-fpm` of an image of nginx's says nothing.
    check("web=nginx:for-php app=shop:8.2-fpm", NONE);
    // A registry is none either.
    check("web=php.example.org/nginx app=php.example.org/shop", NONE);
    check("web=php:5000/nginx app=php:5000/shop", NONE);
}

#[test]
fn php_container_by_the_folder_of_its_image() {
    check(
        "web=nginx app=registry.example.org/shop/php/app:3",
        "app Image",
    );
    check("web=php-team/nginx app=php-team/php-fpm", "app Image");
    check(
        "web=php-team/nginx app=php-team/shop",
        "and according to their names or images, web and app may run PHP",
    );
}

#[test]
fn php_container_needs_whole_words() {
    check("phpmyadmin=phpmyadmin/phpmyadmin:5 nginx", NONE);
    check("array arr worker-frr fpmx", NONE);
    check("graphpsql nginx", NONE);
    check("phpmyadmin php-fpm", "php-fpm Name");
}

#[test]
fn php_container_not_one_that_only_watches_php() {
    check("php-fpm php-fpm-exporter", "php-fpm Name");
    check("app=php:8 metrics=hipages/php-fpm_exporter:2", "app Image");
    check("php=php:8 fpm=hipages/php-fpm_exporter:2", "php Name");
    check("php php-logs", "php Name");
    check("nginx php-fpm-exporter", NONE);
}

#[test]
fn php_container_refuses_several_with_their_names() {
    let none = found(&ProfileTarget::default(), &pod("nginx app"));
    assert_eq!(
        none,
        format!("pod web has the containers nginx, app, {NONE}")
    );
    let two = found(&ProfileTarget::default(), &pod("php-fpm nginx php-cron"));
    let names = "pod web has the containers php-fpm, nginx, php-cron";
    assert_eq!(
        two,
        format!(
            "{names}, and according to their names or images, php-fpm and php-cron may run PHP"
        )
    );
}

#[test]
fn php_container_ends_on_any_text() {
    for odd in [
        "",
        "/",
        ":",
        "@",
        "//php//",
        "a:b:c/d:e@f/g",
        "ü/php",
        "://",
    ] {
        let mut pod = pod("one two");
        pod.containers[1].image = odd.to_owned();
        let _ = found(&ProfileTarget::default(), &pod);
        let parts: Vec<_> = repository(odd).collect();
        assert!(!parts.is_empty(), "{odd}");
    }
}
