//! The sizes of small elements (Zend/zend_alloc_sizes.h, `ZEND_MM_BINS_INFO`), which are the same
//! from 7.0 to 8.6.
//!
//! Invariant: a run has at most seven pages, and all its elements are in them.

/// How many sizes there are: `ZEND_MM_BINS`.
pub const BINS: usize = 30;

/// A size of small elements. A run of pages has elements of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bin {
    /// Bytes of an element.
    pub size: u64,
    /// Elements of a run.
    pub elements: u64,
    /// Pages of a run.
    pub pages: usize,
}

const fn bin(size: u64, elements: u64, pages: usize) -> Bin {
    Bin {
        size,
        elements,
        pages,
    }
}

/// All sizes, by `bin_num`.
pub const ALL: [Bin; BINS] = [
    bin(8, 512, 1),
    bin(16, 256, 1),
    bin(24, 170, 1),
    bin(32, 128, 1),
    bin(40, 102, 1),
    bin(48, 85, 1),
    bin(56, 73, 1),
    bin(64, 64, 1),
    bin(80, 51, 1),
    bin(96, 42, 1),
    bin(112, 36, 1),
    bin(128, 32, 1),
    bin(160, 25, 1),
    bin(192, 21, 1),
    bin(224, 18, 1),
    bin(256, 16, 1),
    bin(320, 64, 5),
    bin(384, 32, 3),
    bin(448, 9, 1),
    bin(512, 8, 1),
    bin(640, 32, 5),
    bin(768, 16, 3),
    bin(896, 9, 2),
    bin(1024, 8, 2),
    bin(1280, 16, 5),
    bin(1536, 8, 3),
    bin(1792, 16, 7),
    bin(2048, 8, 4),
    bin(2560, 8, 5),
    bin(3072, 4, 3),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_fit_their_pages() {
        for (number, bin) in ALL.iter().enumerate() {
            assert!(bin.pages <= 7, "{number}");
            let room = bin.pages as u64 * 4096;
            let used = bin.size * bin.elements;
            // Each run has as many elements as it can hold.
            assert!(used <= room && room - used < bin.size, "{number}");
            assert!(number == 0 || ALL[number - 1].size < bin.size);
        }
    }
}
