//! A timeline as an element of the page. It is JSON in which nothing can end the element.
//!
//! Invariant: the element's content has no `<` and is never longer than [`LARGEST_TIMELINE`].

use std::io::{Error, ErrorKind, Result, Write};

use crate::timeline::Timeline;

/// The most bytes of a timeline as JSON. A [`Timeline`] at its bounds has some 9 MB with short names.
pub const LARGEST_TIMELINE: usize = 16 << 20;

/// The element for the page's script; empty without a timeline. If the timeline is too large, the page says so.
pub(crate) fn element(timeline: Option<&Timeline>) -> String {
    let Some(timeline) = timeline else {
        return String::new();
    };
    let json = json(timeline, LARGEST_TIMELINE).unwrap_or_else(|| "null".to_owned());
    format!("<script type=\"application/json\" id=\"timeline\">{json}</script>\n")
}

fn json(timeline: &Timeline, room: usize) -> Option<String> {
    let mut text = Text {
        bytes: Vec::new(),
        room,
    };
    serde_json::to_writer(&mut text, timeline).ok()?;
    String::from_utf8(text.bytes).ok()
}

/// Takes JSON up to a length. In a script element, only `<` can begin its end or a comment. In JSON, it occurs only in strings.
struct Text {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for Text {
    fn write(&mut self, json: &[u8]) -> Result<usize> {
        for (index, part) in json.split(|byte| *byte == b'<').enumerate() {
            if index > 0 {
                self.bytes.extend_from_slice(b"\\u003c");
            }
            self.bytes.extend_from_slice(part);
        }
        match self.bytes.len() <= self.room {
            true => Ok(json.len()),
            false => Err(Error::from(ErrorKind::StorageFull)),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Function, Request, RouteRow};

    const HOSTILE: &str = "</script><script>alert(1)</script><!--\u{2028}";

    fn hostile() -> Timeline {
        let text = || HOSTILE.to_owned();
        Timeline {
            routes: vec![RouteRow {
                route: text(),
                cells: Vec::new(),
            }],
            requests: vec![Request {
                pod: text(),
                method: text(),
                route: text(),
                script: text(),
                trace_id: text(),
                ..Request::default()
            }],
            functions: vec![Function {
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
    fn a_timeline_that_is_too_large_is_left_out_whole() {
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
    fn a_page_without_a_timeline_has_no_element_for_it() {
        assert_eq!(element(None), "");
    }
}
