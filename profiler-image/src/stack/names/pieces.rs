//! Texts in pieces, each of which is kept once.
//!
//! Generated classes have long names that differ in a part:
//! `Vendor\\Module\\Model\\Order\\Interceptor`. They share their namespace, their methods' names
//! and their folder, and the file is named after the class. So a name is kept as namespace, class
//! and method, and a file as folder, name and extension. Invariant: the pieces of a text, one after
//! the other, are the text.

use std::fmt::{self, Display, Formatter};
use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// The most bytes of all pieces together.
pub const MAX_TEXT: usize = 1 << 20;
/// The largest number of pieces: two for each name. It is the capacity of a hash table of 2^15.
pub const MAX_PIECES: usize = 28_672;

/// A piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PieceId(u16);

/// The position of a piece in [`TextPieces::texts`].
#[derive(Debug, Clone, Copy)]
struct PieceSpan {
    begin: u32,
    length: u32,
}

/// All pieces.
#[derive(Debug, Clone, Default)]
pub(super) struct TextPieces {
    spans: Vec<PieceSpan>,
    texts: String,
}

/// A text in three pieces, some of which may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PiecedText<'a>([&'a str; 3]);

/// The pieces of a name or of a file.
pub(super) fn pieces_of(text: &str) -> [&str; 3] {
    let folder = |text: &str| text.rfind(['\\', '/']).map_or(0, |at| at + 1);
    let method = text.rfind("::");
    let begin = folder(&text[..method.unwrap_or(text.len())]);
    let end = method.or_else(|| Some(begin + text[begin..].rfind('.')?));
    let (head, last) = text.split_at(end.unwrap_or(text.len()));
    let (first, middle) = head.split_at(begin);
    [first, middle, last]
}

impl TextPieces {
    /// Keeps these pieces; `None` if there is no room. `known` finds them again.
    pub fn keep(
        &mut self,
        pieces: [&str; 3],
        known: &mut HashTable<PieceId>,
    ) -> Option<[PieceId; 3]> {
        let [first, middle, last] = pieces.map(|piece| self.keep_one(piece, known));
        Some([first?, middle?, last?])
    }

    fn keep_one(&mut self, piece: &str, known: &mut HashTable<PieceId>) -> Option<PieceId> {
        let hash = FxBuildHasher.hash_one(piece);
        if let Some(&id) = known.find(hash, |&id| self.piece(id) == piece) {
            return Some(id);
        }
        let (begin, count) = (self.texts.len(), self.spans.len());
        if begin + piece.len() > MAX_TEXT || count >= MAX_PIECES {
            return None;
        }
        let id = PieceId(u16::try_from(count).ok()?);
        self.spans.push(PieceSpan {
            begin: u32::try_from(begin).ok()?,
            length: u32::try_from(piece.len()).ok()?,
        });
        self.texts.push_str(piece);
        let rehash = |&id: &PieceId| FxBuildHasher.hash_one(self.piece(id));
        known.insert_unique(hash, id, rehash);
        Some(id)
    }

    fn piece(&self, id: PieceId) -> &str {
        let span = self.spans.get(usize::from(id.0));
        let text = span.and_then(|&PieceSpan { begin, length }| {
            let begin = begin as usize;
            self.texts.get(begin..begin + length as usize)
        });
        text.unwrap_or_default()
    }

    /// The text of these pieces.
    pub fn text(&self, pieces: [PieceId; 3]) -> PiecedText<'_> {
        PiecedText(pieces.map(|id| self.piece(id)))
    }
}

impl<'a> PiecedText<'a> {
    /// Its pieces.
    #[must_use]
    pub fn pieces(self) -> [&'a str; 3] {
        self.0
    }
}

impl Display for PiecedText<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| to.write_str(piece))
    }
}

impl PartialEq<str> for PiecedText<'_> {
    fn eq(&self, other: &str) -> bool {
        let mut rest = Some(other);
        for piece in self.0 {
            rest = rest.and_then(|rest| rest.strip_prefix(piece));
        }
        rest == Some("")
    }
}

impl PartialEq<&str> for PiecedText<'_> {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_and_files_share_their_pieces() {
        let rows = [
            (
                "Shop\\Cart\\Order::total",
                ["Shop\\Cart\\", "Order", "::total"],
            ),
            ("/srv/Cart/Order.php", ["/srv/Cart/", "Order", ".php"]),
            ("strlen", ["", "strlen", ""]),
            (
                "{closure:Shop\\Cart::total():12}",
                ["{closure:Shop\\", "Cart", "::total():12}"],
            ),
            (
                "{closure:/srv/a.php:12}",
                ["{closure:/srv/", "a", ".php:12}"],
            ),
            ("/srv/v1.2/run", ["/srv/v1.2/", "run", ""]),
            ("", ["", "", ""]),
        ];
        for (text, pieces) in rows {
            assert_eq!(pieces_of(text), pieces);
        }
    }

    proptest! {
        #[test]
        fn pieces_are_the_text(texts in proptest::collection::vec("[a-c\\\\/.:é]{0,12}", 1..40)) {
            let (mut pieces, mut known) = (TextPieces::default(), HashTable::new());
            let mut kept = Vec::new();
            for text in &texts {
                kept.push(pieces.keep(pieces_of(text), &mut known).unwrap());
            }
            for (ids, text) in kept.into_iter().zip(&texts) {
                let found = pieces.text(ids);
                prop_assert_eq!(&found.to_string(), text);
                let longer = format!("{text}x");
                prop_assert!(found == **text && found != *longer);
            }
        }
    }
}
