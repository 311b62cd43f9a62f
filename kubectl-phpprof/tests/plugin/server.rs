//! A small API server that answers from a script and records the requests.
//!
//! Invariant: a request without an answer in the script gets a 404, as in a cluster without that
//! API.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

pub struct ReceivedRequest {
    pub method: String,
    pub path: String,
    pub body: Value,
    pub impersonated: Option<String>,
}

/// Status and body.
pub type ServedAnswer = (u16, Vec<u8>);
type ServerScript = dyn Fn(&ReceivedRequest) -> Option<ServedAnswer> + Send + Sync;

pub struct ScriptServer {
    address: String,
    pub asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

pub fn json_answer(code: u16, value: &Value) -> Option<ServedAnswer> {
    Some((code, value.to_string().into_bytes()))
}

/// An error of the API server itself.
pub fn refusal(code: u16, message: &str) -> Option<ServedAnswer> {
    json_answer(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "", "code": code}),
    )
}

impl ScriptServer {
    pub fn start(
        script: impl Fn(&ReceivedRequest) -> Option<ServedAnswer> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<ServerScript> = Arc::new(script);
        let memory = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, memory) = (Arc::clone(&script), Arc::clone(&memory));
                std::thread::spawn(move || serve(stream, script.as_ref(), &memory));
            }
        });
        ScriptServer { address, asked }
    }

    pub fn kubeconfig(&self, folder: &Path) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\nclusters: [{{name: test, cluster: {{server: \"http://{}\"}}}}]\n\
             users: [{{name: ann, user: {{token: secret-of-ann}}}}]\ncontexts: [{{name: test, context: {{cluster: test, user: ann, namespace: shop}}}}]\n",
            self.address
        );
        std::fs::write(folder.join("kubeconfig"), text).unwrap();
    }

    pub fn count(&self, method: &str, part: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .filter(|asked| asked.method == method && asked.path.contains(part))
            .count()
    }
}

fn serve(stream: TcpStream, script: &ServerScript, memory: &Mutex<Vec<ReceivedRequest>>) {
    let Some(asked) = read(&stream) else { return };
    let (code, body) = script(&asked)
        .or_else(|| refusal(404, "the server could not find the requested resource"))
        .unwrap();
    memory.lock().unwrap().push(asked);
    let mut stream = stream;
    let _ = write!(
        stream,
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&body);
}

fn read(stream: &TcpStream) -> Option<ReceivedRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut impersonated) = (0, None);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "impersonate-user" => impersonated = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(ReceivedRequest {
        method,
        path,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        impersonated,
    })
}
