//! A list that needs no allocation while it is short, because a sample reads dozens of texts and
//! ranges.
//!
//! Invariant: it behaves like a `Vec` of the same elements.

use std::ops::{Deref, DerefMut};

/// Up to `N` elements in place, more on the heap.
#[derive(Debug, Clone)]
pub struct Short<T, const N: usize> {
    in_place: [T; N],
    length: usize,
    /// All elements, if there are more than `N`.
    heap: Vec<T>,
}

/// A text; few names and paths are longer.
pub type ShortText = Short<u8, 120>;

impl<T: Copy + Default, const N: usize> Short<T, N> {
    /// The elements.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        self
    }

    /// Its allocated memory, in bytes.
    #[must_use]
    pub fn bytes_on_heap(&self) -> usize {
        self.heap.capacity() * size_of::<T>()
    }

    /// Sets its length; new elements are the default.
    pub fn resize(&mut self, length: usize) {
        if length > N && self.heap.is_empty() {
            self.heap = Vec::with_capacity(length);
            self.heap.extend_from_slice(&self.in_place[..self.length]);
        }
        if length <= N {
            let kept = self.length.min(length);
            if self.length > N {
                self.in_place[..kept].copy_from_slice(&self.heap[..kept]);
            }
            self.in_place[kept..].fill(T::default());
            self.heap = Vec::new();
        } else {
            self.heap.resize(length, T::default());
        }
        self.length = length;
    }
}

impl<T: Copy + Default, const N: usize> Default for Short<T, N> {
    fn default() -> Self {
        Self {
            in_place: [T::default(); N],
            length: 0,
            heap: Vec::new(),
        }
    }
}

impl<T: Copy + Default, const N: usize> Deref for Short<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        if self.length > N {
            &self.heap
        } else {
            &self.in_place[..self.length]
        }
    }
}

impl<T: Copy + Default, const N: usize> DerefMut for Short<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.length > N {
            &mut self.heap
        } else {
            &mut self.in_place[..self.length]
        }
    }
}

impl<T: Copy + Default, const N: usize> Extend<T> for Short<T, N> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, more: I) {
        for element in more {
            let length = self.length;
            self.resize(length + 1);
            self[length] = element;
        }
    }
}

impl<T: Copy + Default, const N: usize> From<&[T]> for Short<T, N> {
    fn from(elements: &[T]) -> Self {
        let mut short = Self::default();
        short.resize(elements.len());
        short.copy_from_slice(elements);
        short
    }
}

impl<const N: usize> From<&str> for Short<u8, N> {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl<T: Copy + Default + PartialEq, const N: usize> PartialEq for Short<T, N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Copy + Default + Eq, const N: usize> Eq for Short<T, N> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_vec_beyond_its_room() {
        let (mut short, mut vec) = (Short::<u8, 4>::default(), Vec::new());
        for length in [3, 4, 5, 9, 2, 4, 7, 0, 6] {
            short.resize(length);
            vec.resize(length, 0);
            short.extend([7]);
            vec.push(7);
            assert_eq!(*short, *vec);
        }
        assert_eq!(short, Short::from(vec.as_slice()));
    }
}
