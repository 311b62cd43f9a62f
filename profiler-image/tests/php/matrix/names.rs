//! Names by generation, from a seed: letters, accents, Chinese and Japanese, emoji, spaces that do
//! not break, and bytes that are no UTF-8.
//!
//! Invariant: the same seed makes the same names, and no two of a program are the same without
//! regard to case.

/// What a name may be made of, apart from single bytes.
const ALPHABETS: [&[&str]; 5] = [
    &["a", "e", "T", "_", "q", "Z"],
    &["é", "ü", "ñ", "Å", "ß", "ø"],
    &["日", "本", "語", "の", "漢"],
    &["😀", "🧾", "👩\u{200d}🚀", "❤\u{fe0f}"],
    &["\u{a0}"],
];
/// How long names are, in bytes: short ones, around the engine's groups of eight, around the limit
/// of what is shown whole, and long ones.
const LENGTHS: [usize; 12] = [1, 2, 7, 8, 9, 16, 40, 96, 300, 511, 513, 5000];

/// Random numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub fn length(&mut self) -> usize {
        self.one_of(&LENGTHS)
    }

    /// At least this many bytes of one or two alphabets, or of any bytes that PHP takes for
    /// letters.
    fn letters(&mut self, length: usize) -> Vec<u8> {
        let kinds = [self.below(6), self.below(6)];
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let kind = self.one_of(&kinds);
            match ALPHABETS.get(kind).copied() {
                Some(alphabet) => bytes.extend(self.one_of(alphabet).bytes()),
                None => bytes.push(0x80 | self.below(0x80) as u8),
            }
        }
        bytes
    }

    /// An identifier of about this length. It begins with a letter of its own, so it is unlike
    /// others with another one, and no reserved word.
    pub fn identifier(&mut self, own: u8, length: usize) -> Vec<u8> {
        let mut name = vec![own];
        if length > 1 {
            name.push(b'_');
            name.extend(self.letters(length - 2));
        }
        if length > 4 && self.below(2) == 0 {
            name.insert(0, 0xc3);
            name.insert(1, 0xa9);
        }
        name
    }

    /// The name of a file or a folder: also spaces, marks of formats, and what a terminal obeys.
    pub fn file(&mut self, own: u8) -> Vec<u8> {
        let length = self.one_of(&[1, 8, 30, 150]);
        let mut name = self.identifier(own, length);
        for _ in 0..self.below(4) {
            let odd: &[u8] = self.one_of(&[
                b" ",
                b";",
                b"<80>",
                b"&\"'",
                b"\x1b[31m",
                b"\n",
                "\u{202e}".as_bytes(),
            ]);
            name.extend(odd);
        }
        name.extend(b".php");
        name
    }

    /// The name of a script whose label shows it whole: letters, and bytes that are none.
    pub fn script(&mut self) -> Vec<u8> {
        let mut name = Vec::new();
        for _ in 0..=self.below(4) {
            let letter: &[u8] = self.one_of(&["é".as_bytes(), "語".as_bytes(), b"\xff", b"e"]);
            name.extend(letter);
        }
        name.extend(b".php");
        name
    }

    /// The name of a pool.
    pub fn pool(&mut self) -> Vec<u8> {
        let length = self.one_of(&[1, 8, 24]);
        let mut name = self.identifier(b'p', length);
        name.truncate(24);
        name
    }
}
