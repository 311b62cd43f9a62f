//! A relay for tests: TLS, one call per connection. The test provides its answers, and it stores
//! all uploads.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use phpprof::deliver::receipt::base64url;
use ring::digest;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::ParsedCertificate;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// A relay, and the calls that it has received.
pub struct Relay {
    /// The host with its port.
    host: String,
    pin: String,
    asked: AtomicUsize,
    /// The uploads with their keys, in order.
    stored: Mutex<Vec<(String, Vec<u8>)>>,
    /// The received seconds of live runs, and the status for each: 200 after the last.
    live: Mutex<Vec<Vec<u8>>>,
    live_answers: Mutex<Vec<u16>>,
    /// Whether uploads are refused for now, and how many were.
    is_away: AtomicBool,
    refused: AtomicUsize,
}

/// The answer to a poll; status 0 is not an answer at all.
pub type RelayAnswer = (u16, String);

impl Relay {
    /// Starts it; it ends with the process.
    pub fn start(
        answer: impl Fn(&Self) -> RelayAnswer + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let certified = rcgen::generate_simple_self_signed(["relay".to_owned()])?;
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der());
        let certificate = certified.cert.der().clone();
        let public = ParsedCertificate::try_from(&certificate)?.subject_public_key_info();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.map_err(anyhow::Error::msg)?)?;
        let (config, answer) = (Arc::new(config), Arc::new(answer));
        let relay = Arc::new(Self {
            host: listener.local_addr()?.to_string(),
            pin: base64url(digest::digest(&digest::SHA256, public.as_ref()).as_ref()),
            asked: AtomicUsize::new(0),
            stored: Mutex::default(),
            live: Mutex::default(),
            live_answers: Mutex::default(),
            is_away: AtomicBool::default(),
            refused: AtomicUsize::default(),
        });
        let of_thread = Arc::clone(&relay);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (relay, config) = (Arc::clone(&of_thread), Arc::clone(&config));
                let answer = Arc::clone(&answer);
                std::thread::spawn(move || relay.serve(stream, config, &*answer));
            }
        });
        Ok(relay)
    }

    fn serve(
        &self,
        stream: TcpStream,
        config: Arc<ServerConfig>,
        answer: &dyn Fn(&Self) -> RelayAnswer,
    ) -> Result<()> {
        let mut reader = BufReader::new(StreamOwned::new(ServerConnection::new(config)?, stream));
        let (mut line, mut length) = (String::new(), 0);
        reader.read_line(&mut line)?;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            if header.trim().is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut body = Vec::new();
        reader.by_ref().take(length).read_to_end(&mut body)?;
        let path = line.split(' ').nth(1).context("no request")?;
        let (status, said) = match path.split_once("/v1/object?key=") {
            Some(_) if self.is_away.load(Ordering::SeqCst) => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                (503, String::new())
            }
            Some((_, key)) => {
                self.stored().push((key.to_owned(), body));
                (200, String::new())
            }
            None if path.starts_with("/v1/live?key=") => (self.bring(body), String::new()),
            None if path.starts_with("/v1/runs") => {
                self.asked.fetch_add(1, Ordering::SeqCst);
                answer(self)
            }
            None if path.starts_with("/v1/refused") => (403, String::new()),
            // It does not answer requests about stopping.
            None => (0, String::new()),
        };
        if status == 0 {
            std::thread::sleep(Duration::from_secs(60));
        }
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n",
            said.len()
        );
        let stream = reader.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(said.as_bytes())?;
        stream.conn.send_close_notify();
        Ok(stream.flush()?)
    }

    fn bring(&self, second: Vec<u8>) -> u16 {
        let mut answers = locked(&self.live_answers);
        let answer = if answers.is_empty() {
            200
        } else {
            answers.remove(0)
        };
        if answer == 200 {
            locked(&self.live).push(second);
        }
        answer
    }

    /// Sets the status of the answers to seconds, in order.
    pub fn answer_seconds(&self, answers: &[u16]) {
        *locked(&self.live_answers) = answers.to_vec();
    }

    /// The seconds that it has accepted.
    pub fn seconds(&self) -> Vec<Vec<u8>> {
        locked(&self.live).clone()
    }

    /// Whether uploads are answered by 503, as they are while the store is away.
    pub fn be_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// How many uploads were.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    fn stored(&self) -> std::sync::MutexGuard<'_, Vec<(String, Vec<u8>)>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of polls.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// The keys of all uploads, repeated for each upload.
    pub fn keys(&self) -> Vec<String> {
        self.stored().iter().map(|(key, _)| key.clone()).collect()
    }

    pub fn has(&self, key: &str) -> bool {
        self.stored().iter().any(|(it, _)| it == key)
    }

    /// The upload for a key, which must be the only one.
    pub fn object(&self, key: &str) -> Result<Vec<u8>> {
        let stored = self.stored();
        let mut found = stored.iter().filter(|(it, _)| it == key);
        let (_, bytes) = found.next().with_context(|| format!("no {key}"))?;
        ensure!(found.next().is_none(), "{key} was put twice");
        Ok(bytes.clone())
    }

    pub fn receipt(&self, run: &str) -> Result<String> {
        Ok(String::from_utf8(
            self.object(&format!("{run}.pb.gz.receipt"))?,
        )?)
    }

    /// The value of `PHPPROF_ASK`.
    pub fn ask(&self) -> Value {
        json!({
            "url": format!("https://{}/v1/runs?sampler=x", self.host),
            "headers": {"authorization": "Bearer ask"},
            "pins": [self.pin],
        })
    }

    fn grant(&self, key: &str, more: &[(&str, String)]) -> Value {
        let mut grant = json!({
            "route": "Relay",
            "method": "PUT",
            "url": format!("https://{}/v1/object?key={key}", self.host),
            "headers": {"authorization": "Bearer SECRET"},
            "pins": [self.pin],
        });
        for (name, value) in more {
            grant[*name] = json!(value);
        }
        grant
    }

    /// A run for that container; its profile has the label `run`.
    pub fn run(&self, name: &str, container_id: &str, seconds: u32) -> Value {
        let stop = format!("https://{}/v1/stop", self.host);
        let profile = self.grant(&format!("{name}.pb.gz"), &[("stop", stop)]);
        json!({
            "key": format!("{name}.pb.gz"),
            "arguments": [
                "record",
                format!("--container-id={container_id}"),
                format!("--duration-seconds={seconds}"),
                "--receipt=-",
                "--grants-on-stdin",
                format!("--label=run=label-of-{name}"),
            ],
            "environment": {"PHPPROF_GRANTS": json!({"profile": [profile]}).to_string()},
            "receipt": self.grant(&format!("{name}.pb.gz.receipt"), &[]),
        })
    }

    /// The same, with live seconds.
    pub fn live_run(&self, name: &str, container_id: &str, seconds: u32) -> Value {
        let mut run = self.run(name, container_id, seconds);
        let of = |path: &str| format!("https://{}/v1/{path}", self.host);
        let live = of(&format!("live?key={name}.pb.gz"));
        let more = [("stop", of("stop")), ("live", live)];
        let profile = self.grant(&format!("{name}.pb.gz"), &more);
        run["environment"]["PHPPROF_GRANTS"] = json!({"profile": [profile]}).to_string().into();
        if let Some(arguments) = run["arguments"].as_array_mut() {
            arguments.push(json!("--live"));
        }
        run
    }

    /// The same with a list of requests, which the relay accepts or refuses.
    pub fn listing_run(&self, name: &str, container_id: &str, is_taken: bool) -> Value {
        self.listing(self.run(name, container_id, 2), name, is_taken)
    }

    /// A live run with a list of requests.
    pub fn live_list_run(&self, name: &str, container_id: &str, seconds: u32) -> Value {
        self.listing(self.live_run(name, container_id, seconds), name, true)
    }

    fn listing(&self, mut run: Value, name: &str, is_taken: bool) -> Value {
        let mut grant = self.grant(&format!("{name}.requests.json.gz"), &[]);
        if !is_taken {
            grant["url"] = json!(format!("https://{}/v1/refused", self.host));
        }
        if let Some(arguments) = run["arguments"].as_array_mut() {
            arguments.push(json!("--labels=Method,Route,Script,TraceID"));
        }
        run["environment"]["PHPPROF_REQUESTS"] = json!(json!({"requests": [grant]}).to_string());
        run
    }

    /// An answer with these runs, which requests the next poll in a second.
    pub fn answer(&self, lease_seconds: u32, runs: &[Value]) -> RelayAnswer {
        let answer = json!({
            "askAgainSeconds": 1,
            "leaseSeconds": lease_seconds,
            "ask": self.ask(),
            "runs": runs,
        });
        (200, answer.to_string())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer when profiling is stopped.
pub fn stopped() -> RelayAnswer {
    (410, String::new())
}
