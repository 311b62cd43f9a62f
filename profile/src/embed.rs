//! A page while it is written: HTML, and elements with JSON in which nothing can end the element.
//!
//! Invariant: the JSON has no `<`, and a [`Text`] is never longer than its room.

use std::io::{Error, ErrorKind, Result, Write};

use serde::Serialize;

use crate::timeline::Timeline;

/// The most bytes of a timeline as JSON. A [`Timeline`] at its bounds has about 9 MB with short
/// names.
pub const LARGEST_TIMELINE: usize = 16 << 20;

/// The element for the page's script; empty without a timeline. If the timeline is too large, the
/// page says so.
pub(crate) fn element(timeline: Option<&Timeline>) -> String {
    let Some(timeline) = timeline else {
        return String::new();
    };
    let json = json(timeline, LARGEST_TIMELINE).unwrap_or_else(|| "null".to_owned());
    format!("<script type=\"application/json\" id=\"timeline\">{json}</script>\n")
}

fn json(timeline: &Timeline, room: usize) -> Option<String> {
    let mut text = Text::new(room);
    text.json(timeline).ok()?;
    Some(text.finish())
}

/// Text up to a length. What is longer is an error, before it takes memory.
pub(crate) struct Text {
    bytes: Vec<u8>,
    room: usize,
}

impl Text {
    pub fn new(room: usize) -> Self {
        Text {
            bytes: Vec::new(),
            room,
        }
    }

    pub fn html(&mut self, html: &str) -> Result<()> {
        self.add(html.as_bytes())
    }

    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        Ok(serde_json::to_writer(Json(self), value)?)
    }

    pub fn finish(self) -> String {
        // HTML and JSON were valid text, so this cannot fail.
        String::from_utf8(self.bytes).unwrap_or_default()
    }

    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() > self.room - self.bytes.len() {
            return Err(Error::from(ErrorKind::StorageFull));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// Takes JSON. In a script element, only `<` can begin its end or a comment. In JSON, it occurs
/// only in strings.
struct Json<'t>(&'t mut Text);

impl Write for Json<'_> {
    fn write(&mut self, json: &[u8]) -> Result<usize> {
        for (index, part) in json.split(|byte| *byte == b'<').enumerate() {
            if index > 0 {
                self.0.add(b"\\u003c")?;
            }
            self.0.add(part)?;
        }
        Ok(json.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{RouteRow, TimelineRequest, TreeFunction};

    const HOSTILE: &str = "</script><script>alert(1)</script><!--\u{2028}";

    fn hostile() -> Timeline {
        let text = || HOSTILE.to_owned();
        Timeline {
            routes: vec![RouteRow {
                route: text(),
                cells: Vec::new(),
            }],
            requests: vec![TimelineRequest {
                pod: text(),
                method: text(),
                route: text(),
                script: text(),
                trace_id: text(),
                ..TimelineRequest::default()
            }],
            functions: vec![TreeFunction {
                name: text(),
                file: text(),
            }],
            ..Timeline::default()
        }
    }

    #[test]
    fn nothing_in_a_timeline_can_end_its_element() {
        let element = element(Some(&hostile()));
        assert_eq!(element.matches('<').count(), 2, "its own tags: {element}");
        let json = element
            .split_once('>')
            .and_then(|(_, rest)| rest.rsplit_once("</script>"))
            .map(|(json, _)| json)
            .unwrap();
        let read: Timeline = serde_json::from_str(json).unwrap();
        assert_eq!(read, hostile(), "and it says the same");
    }

    #[test]
    fn a_too_large_timeline_is_left_out() {
        let length = json(&hostile(), usize::MAX).unwrap().len();
        assert!(json(&hostile(), length).is_some());
        assert_eq!(json(&hostile(), length - 1), None);
        let mut large = hostile();
        // Each takes six bytes after escaping.
        large.routes[0].route = "<".repeat(LARGEST_TIMELINE / 6);
        let element = element(Some(&large));
        assert!(element.ends_with(">null</script>\n"), "{}", element.len());
    }

    #[test]
    fn a_page_without_a_timeline_has_no_element() {
        assert_eq!(element(None), "");
    }
}
