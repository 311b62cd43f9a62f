//! The pods that are profiled, as objects.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// An image of the project, by its name.
pub fn image(name: &str) -> String {
    let registry = std::env::var("IMAGE_REGISTRY").unwrap_or_default();
    let registry = match registry.trim_end_matches('/') {
        "" => "phpprof.dev",
        registry => registry,
    };
    // As images/build and e2e/images/build tag them.
    let tag = match name {
        "phpprof" | "operator" | "kubectl-phpprof" => env!("CARGO_PKG_VERSION"),
        _ => "dev",
    };
    format!("{registry}/{name}:{tag}")
}

fn pod(name: &str, containers: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": containers},
    })
}

fn container(name: &str, image_name: &str, command: Value) -> Value {
    json!({
        "name": name, "image": image(image_name), "imagePullPolicy": "IfNotPresent", "command": command,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    })
}

/// php-fpm in its most common form: root master, www-data workers, no security context. Next to it,
/// a client loads it about an eighth of the time: the tests run next to each other.
pub fn php(name: &str) -> Value {
    loaded_php(name, 140)
}

/// The same, loaded a third of the time, for tests that compare counts of samples.
pub fn busy_php(name: &str) -> Value {
    loaded_php(name, 40)
}

/// A request of the demo takes about 20 ms.
fn loaded_php(name: &str, pause_milliseconds: u32) -> Value {
    let mut fpm = container("fpm", "demo", json!(["php-fpm8.2", "--nodaemonize"]));
    fpm["readinessProbe"] = json!({"tcpSocket": {"port": 9000}, "periodSeconds": 1});
    let pause = pause_milliseconds.to_string();
    let load = json!(["php", "/srv/load.php", "127.0.0.1:9000", "300", "1", pause]);
    pod(name, json!([fpm, container("load", "demo", load)]))
}

/// The same pod without that client: php-fpm waits, and uses no CPU.
pub fn idle_php(name: &str) -> Value {
    let mut pod = php(name);
    if let Some(containers) = pod["spec"]["containers"].as_array_mut() {
        containers.truncate(1);
    }
    pod
}

/// The same, but what runs as PID 1 ignores SIGTERM: its sampler gets SIGTERM too, and lives until
/// both are killed.
pub fn stubborn_php(name: &str) -> Value {
    let mut pod = php(name);
    let line = "trap '' TERM; php-fpm8.2 --nodaemonize & wait";
    pod["spec"]["containers"][0]["command"] = json!(["sh", "-c", line]);
    pod
}

/// The demo in another runtime: the image with that name and its own command. Next to it, a client
/// with these arguments.
pub fn runtime(name: &str, image: &str, load: &[&str]) -> Value {
    let mut php = container("php", image, Value::Null);
    php["readinessProbe"] = json!({"tcpSocket": {"port": 9000}, "periodSeconds": 1});
    let load = [&["php", "/srv/load.php"], load].concat();
    pod(name, json!([php, container("load", "demo", json!(load))]))
}

/// DokuWiki under php-fpm behind nginx, and a client that requests its pages in turn.
pub fn dokuwiki(name: &str, opcache: &str) -> Value {
    const PAGES: [&str; 12] = [
        "/doku.php?id=wiki:syntax",
        "/doku.php?id=wiki:dokuwiki&purge=true",
        "/lib/exe/css.php?t=dokuwiki",
        "/feed.php?mode=list&ns=wiki&purge=1",
        "/doku.php?id=wiki:welcome&purge=true",
        "/lib/exe/detail.php?id=wiki:dokuwiki&media=wiki:dokuwiki-128.png",
        "/doku.php?id=wiki:syntax&do=index",
        "/lib/exe/fetch.php?media=wiki:dokuwiki-128.png",
        "/doku.php?do=search&q=wiki",
        "/lib/exe/js.php?t=dokuwiki",
        "/doku.php?id=wiki:syntax&do=edit",
        "/doku.php?id=wiki:dokuwiki",
    ];
    let setting = format!("opcache.enable={opcache}");
    let fpm = json!(["php-fpm8.2", "--nodaemonize", "-d", setting]);
    let mut nginx = container("nginx", "dokuwiki", json!(["nginx", "-g", "daemon off;"]));
    nginx["readinessProbe"] =
        json!({"httpGet": {"port": 8080, "path": PAGES[0]}, "periodSeconds": 1});
    let load = [
        "php",
        "/srv/load.php",
        "http://127.0.0.1:8080",
        "300",
        "1",
        "20",
    ];
    let load = container("load", "demo", json!([&load, &PAGES[..]].concat()));
    pod(
        name,
        json!([container("fpm", "dokuwiki", fpm), nginx, load]),
    )
}

/// The same pod, from which these addresses, separated by blanks, cannot be reached.
pub fn cut_off_from(mut pod: Value, addresses: &str) -> Value {
    let line = |address: &str| {
        let is_ipv6 = address.contains(':');
        let (family, bits) = if is_ipv6 { (6, 128) } else { (4, 32) };
        format!("ip -{family} route add unreachable {address}/{bits}")
    };
    let lines: Vec<String> = addresses.split_whitespace().map(line).collect();
    let line = lines.join(" && ");
    let mut cut = container("cut", "busybox", json!(["sh", "-c", line]));
    cut["securityContext"] = json!({"privileged": true});
    pod["spec"]["initContainers"] = json!([cut]);
    pod
}

/// The same pod as an ordinary user, as Pod Security `restricted` requires.
pub fn restricted(mut pod: Value) -> Value {
    pod["spec"]["securityContext"] = json!({
        "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"},
    });
    for container in pod["spec"]["containers"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        container["securityContext"] =
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    }
    pod
}

/// A pod in which no PHP runs.
pub fn without_php(name: &str) -> Value {
    pod(
        name,
        json!([container("fpm", "demo", json!(["sleep", "infinity"]))]),
    )
}

/// php-fpm of a version that phpprof does not know.
pub fn unknown_php(name: &str) -> Value {
    pod(
        name,
        json!([container(
            "fpm",
            "unknown-php",
            json!(["php-fpm8.2", "--nodaemonize"])
        )]),
    )
}

/// An S3 server with an odd side, of `e2e/tests/cluster/odd-store.php`, in this mode.
pub fn odd_store(name: &str, mode: &str, script: &str) -> Value {
    let line = "printf %s \"$SCRIPT\" >/tmp/odd.php && exec php8.2 -S '[::]:9000' /tmp/odd.php";
    let mut server = container("s3", "demo", json!(["sh", "-c", line]));
    server["env"] = json!([
        {"name": "SCRIPT", "value": script}, {"name": "MODE", "value": mode}, {"name": "PHP_CLI_SERVER_WORKERS", "value": "4"},
    ]);
    server["readinessProbe"] = json!({"tcpSocket": {"port": 9000}, "periodSeconds": 1});
    let mut pod = pod(name, json!([server]));
    pod["metadata"]["labels"] = json!({"app": name});
    pod
}

/// A container that runs this PHP code forever.
fn looping(name: &str, code: &str) -> Value {
    let mut container = container(name, "demo", json!(["/usr/bin/php8.2", "-r", code]));
    container["securityContext"] = json!({"runAsUser": 33, "runAsGroup": 33});
    container
}

/// Four busy processes below a limit of a fifth of a CPU.
pub fn throttled(name: &str) -> Value {
    let code = "function work() { return md5(str_repeat('x', 50000)); } while (true) { work(); }";
    let mut php = looping("php", code);
    let fork = "for ($child = 0; $child < 3 && pcntl_fork() !== 0; $child++);";
    php["command"][2] = json!(format!("{fork} {code}"));
    php["resources"]["limits"] = json!({"cpu": "200m"});
    pod(name, json!([php]))
}

/// A process with a leak: a static array gets orders that nobody takes out again, 1,000 a second
/// and at most 100,000. Its keys and values are secrets.
pub fn leaking(name: &str) -> Value {
    let code = r#"namespace Shop;
        class Order { public array $lines; function __construct(int $n) { $this->lines = ["secret-$n"]; } }
        class Cache { public static array $items = []; }
        for ($n = 0; true; usleep(20000)) {
            for ($more = 20; $more-- > 0 && $n < 100000; $n++) { Cache::$items["4111111111111111-$n"] = new Order($n); }
        }"#;
    pod(name, json!([looping("php", code)]))
}

/// nginx's place first, and PHP second, without an annotation: the most usual PHP pod.
pub fn php_second(name: &str, php: &str) -> Value {
    let code = "function work() { return md5(str_repeat('x', 50000)); } while (true) { work(); usleep(2000); }";
    let first = container("nginx", "busybox", json!(["sleep", "100000"]));
    pod(name, json!([first, looping(php, code)]))
}

/// PHP in a native sidecar: an init container that stays (Kubernetes 1.29).
pub fn php_in_sidecar(name: &str) -> Value {
    let code = "namespace Sidecar; function work(int $n): string { $s = ''; while ($n--) { $s = md5($s); } return $s; } while (true) { work(20000); usleep(20000); }";
    let main = container("main", "busybox", json!(["sleep", "100000"]));
    let mut pod = pod(name, json!([main]));
    let mut sidecar = looping("php", code);
    sidecar["restartPolicy"] = json!("Always");
    pod["spec"]["initContainers"] = json!([sidecar]);
    pod
}

/// The pod's address as the host of a URL: one of IPv6 has brackets.
pub fn host(pod: &Pod) -> Result<String> {
    let status = pod.status.as_ref();
    let address = status.and_then(|status| status.pod_ip.as_deref());
    let address = address.context("the pod has no address")?;
    let is_ipv6 = address.contains(':');
    Ok(if is_ipv6 {
        format!("[{address}]")
    } else {
        address.to_owned()
    })
}

/// How often the containers of a pod were restarted.
pub fn restarts(pod: &Pod) -> i32 {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    containers
        .iter()
        .map(|container| container.restart_count)
        .sum()
}

/// How many ephemeral containers a pod has.
pub fn ephemeral_containers(pod: &Pod) -> usize {
    let spec = pod.spec.clone().unwrap_or_default();
    spec.ephemeral_containers.unwrap_or_default().len()
}
