//! Runs a headless Chromium over a pipe (the DevTools protocol), and records its console,
//! exceptions and requests.
//!
//! It only checks that commands are answered in time.
//!
//! Invariant: the browser and its profile folder are removed when its value is dropped.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Chromium's answer to an expression if the page was left before the result.
const LEFT: &str = "Inspected target navigated or closed";
const ANSWER: Duration = Duration::from_secs(60);
const PROGRAMS: [&str; 3] = ["chromium-headless-shell", "chromium", "google-chrome"];

pub struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    next: i64,
    session: String,
    /// The page's messages and requests since [`Browser::open`].
    pub events: Vec<Value>,
    _home: tempfile::TempDir,
}

impl Browser {
    pub fn start(width: u32, height: u32) -> Self {
        let home = tempfile::tempdir().unwrap();
        let program = PROGRAMS
            .into_iter()
            .find(|program| Command::new(program).arg("--version").output().is_ok())
            .expect("no Chromium: run tools/browser first");
        // The protocol's pipe is on descriptors 3 and 4; the shell puts this process's pipes there.
        let mut process = Command::new("sh")
            .args([
                "-c",
                r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>&2"#,
                program,
            ])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--no-first-run",
            ])
            .args([
                "--remote-debugging-pipe",
                "--enable-unsafe-swiftshader",
                "--disable-background-networking",
            ])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .arg(format!("--window-size={width},{height}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let commands = process.stdin.take().unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while answers
                .read_until(0, &mut message)
                .is_ok_and(|read| read > 0)
            {
                message.pop();
                let parsed = serde_json::from_slice(&message).unwrap_or(Value::Null);
                if sender.send(parsed).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Browser {
            process,
            commands,
            messages,
            next: 0,
            session: String::new(),
            events: Vec::new(),
            _home: home,
        };
        browser.attach(width, height);
        browser
    }

    fn attach(&mut self, width: u32, height: u32) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = self.call(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        );
        self.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}),
        );
    }

    /// The result of one command of the protocol; null for an expression if the page was left
    /// meanwhile.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut command = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = self.session.clone().into();
        }
        self.commands
            .write_all(command.to_string().as_bytes())
            .unwrap();
        self.commands.write_all(&[0]).unwrap();
        let deadline = Instant::now() + ANSWER;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self
                .messages
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("no answer to {method}"));
            if message["id"] == id {
                let is_left = message["error"]["message"] == LEFT;
                if is_left && method == "Runtime.evaluate" {
                    return Value::Null;
                }
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    /// Opens a URL and waits until it is loaded.
    pub fn open(&mut self, url: &str) {
        self.events.clear();
        let answer = self.call("Page.navigate", json!({"url": url}));
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    pub fn eval(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    pub fn text(&mut self, selector: &str) -> String {
        let found = self.eval(&format!(
            "document.querySelector({selector:?})?.textContent ?? null"
        ));
        found
            .as_str()
            .unwrap_or_else(|| panic!("no {selector}"))
            .to_owned()
    }

    pub fn wait_for(&mut self, condition: &str) {
        let deadline = Instant::now() + ANSWER;
        while self.eval(&format!("Boolean({condition})")) != true {
            assert!(Instant::now() < deadline, "waited in vain for {condition}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Clicks with the mouse in the middle of the expression's element.
    pub fn click(&mut self, element: &str) {
        let (x, y) = self.middle(element);
        for (kind, buttons) in [("mousePressed", 1), ("mouseReleased", 0)] {
            self.call(
                "Input.dispatchMouseEvent",
                json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1}),
            );
        }
    }

    /// Drags with the left button between two places in the expression's element. They are given as
    /// shares of its width, at half its height.
    pub fn drag(&mut self, element: &str, from: f64, to: f64) {
        let at = self.eval(&format!(
            "(() => {{ const box = {element}.getBoundingClientRect(); return [box.x, box.width, box.y + box.height / 2]; }})()"
        ));
        let number = |index: usize| at[index].as_f64().unwrap();
        let x = |share: f64| number(0) + number(1) * share;
        let middle = (from + to) / 2.0;
        for (kind, share, buttons) in [
            ("mousePressed", from, 1),
            ("mouseMoved", middle, 1),
            ("mouseMoved", to, 1),
            ("mouseReleased", to, 0),
        ] {
            self.call(
                "Input.dispatchMouseEvent",
                json!({"type": kind, "x": x(share), "y": number(2), "button": "left", "buttons": buttons, "clickCount": 1}),
            );
        }
    }

    pub fn hover(&mut self, element: &str) {
        let (x, y) = self.middle(element);
        self.call(
            "Input.dispatchMouseEvent",
            json!({"type": "mouseMoved", "x": x, "y": y}),
        );
    }

    fn middle(&mut self, element: &str) -> (Value, Value) {
        let at = self.eval(&format!(
            "(() => {{ const element = {element}; element.scrollIntoView({{block: 'nearest'}}); \
             const box = element.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ));
        (at[0].clone(), at[1].clone())
    }

    /// Presses a key as on a keyboard. A single letter is also text.
    pub fn key(&mut self, key: &str) {
        self.press(key, false);
    }

    /// Presses a key while Shift is held.
    pub fn shift(&mut self, key: &str) {
        self.press(key, true);
    }

    fn press(&mut self, key: &str, shift: bool) {
        let text = match key {
            // This text presses a button.
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        for kind in ["keyDown", "keyUp"] {
            self.call(
                "Input.dispatchKeyEvent",
                json!({
                    "type": kind, "key": key, "text": if kind == "keyDown" { text } else { "" },
                    // Moving the focus depends on the code, not on the name.
                    "windowsVirtualKeyCode": if key == "Tab" { 9 } else { 0 }, "modifiers": if shift { 8 } else { 0 },
                }),
            );
        }
    }

    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Sets the system's preference: `dark` or `light`.
    pub fn prefer(&mut self, scheme: &str) {
        self.call(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        );
    }

    pub fn screenshot(&mut self, path: &Path) {
        use base64::Engine as _;
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(shot["data"].as_str().unwrap())
            .unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Everything that the console shows as an error or a warning, including violations of the
    /// policy.
    pub fn complaints(&mut self) -> Vec<String> {
        self.eval("0"); // Events that are under way arrive before its answer.
        let complaint = |event: &Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => Some(event.to_string()),
            Some("Runtime.consoleAPICalled")
                if ["error", "warning", "assert"].contains(&event["params"]["type"].as_str()?) =>
            {
                Some(event.to_string())
            }
            Some("Log.entryAdded")
                if ["error", "warning"].contains(&event["params"]["entry"]["level"].as_str()?) =>
            {
                Some(event.to_string())
            }
            _ => None,
        };
        self.events.iter().filter_map(complaint).collect()
    }

    /// The requested URLs. Content of the page itself (`data:`) is not a request.
    pub fn requests(&mut self) -> Vec<String> {
        self.eval("0");
        self.events
            .iter()
            .filter(|event| event["method"] == "Network.requestWillBeSent")
            .filter_map(|event| event["params"]["request"]["url"].as_str())
            .filter(|url| !url.starts_with("data:"))
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
