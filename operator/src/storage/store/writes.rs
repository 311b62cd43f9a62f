//! Writes that never overwrite, and the probe that shows whether the store keeps them.
//!
//! Invariant: a plain write reaches only a store that is known to have no create-only ones, only if
//! the administrator allows it, and only after a HEAD has found no object. The HEAD and the write
//! are two calls, so another writer may come between them (`docs/security.md`).

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutMode, PutOptions, PutPayload};

use super::error::deepest;
use super::health::WriteGuard;
use super::{Operation, ProfileStore, StoreError, failed};
use crate::sampler::store_answer::{Meaning, in_message};

/// The folder of the probe's objects, below the prefix.
const PROBES: &str = ".probe";

/// The result of a write that does not overwrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Created {
    Now,
    Before,
}

/// The answer to a write with a precondition.
enum TriedWrite {
    Done(Created),
    /// The store has no such writes.
    NotImplemented,
}

impl ProfileStore {
    /// Writes an object unless it exists.
    pub(crate) async fn create(
        &self,
        key: &str,
        bytes: impl Into<PutPayload>,
    ) -> Result<Created, StoreError> {
        let bytes = bytes.into();
        if !self.seen.writes().is_unsafe() {
            match self.create_only(key, bytes.clone()).await? {
                TriedWrite::Done(created) => return Ok(created),
                TriedWrite::NotImplemented => self.seen.found(WriteGuard::NotImplemented),
            }
        }
        if self.is_refused() {
            return Err(StoreError::Overwrites(self.seen.health().words()));
        }
        match self.size(key).await? {
            Some(_) => Ok(Created::Before),
            None => self.overwrite(key, bytes).await.map(|()| Created::Now),
        }
    }

    async fn create_only(&self, key: &str, bytes: PutPayload) -> Result<TriedWrite, StoreError> {
        let options = PutOptions {
            mode: PutMode::Create,
            ..PutOptions::default()
        };
        let key = Path::from(key);
        let error = match self.objects.put_opts(&key, bytes, options).await {
            Ok(_) => {
                self.seen.succeeded();
                return Ok(TriedWrite::Done(Created::Now));
            }
            Err(error) => error,
        };
        let meaning = in_message(&deepest(&error)).map(|answer| answer.meaning());
        match (&error, meaning) {
            (_, Some(Meaning::NotImplemented)) => Ok(TriedWrite::NotImplemented),
            // object_store 0.14 takes each 409 for an object that exists.
            (object_store::Error::AlreadyExists { .. }, Some(Meaning::Again)) => {
                Err(failed(&self.seen, Operation::Put)(error))
            }
            (object_store::Error::AlreadyExists { .. }, _) => {
                self.seen.succeeded();
                Ok(TriedWrite::Done(Created::Before))
            }
            _ => Err(failed(&self.seen, Operation::Put)(error)),
        }
    }

    async fn overwrite(&self, key: &str, bytes: PutPayload) -> Result<(), StoreError> {
        let put = self.objects.put(&Path::from(key), bytes).await;
        put.map_err(failed(&self.seen, Operation::Put))?;
        self.seen.succeeded();
        Ok(())
    }

    /// Finds out whether the store keeps create-only writes: it writes one new object twice, and
    /// deletes it again.
    ///
    /// # Errors
    /// The store did not answer so that it could be told; what was known before stays.
    pub async fn probe(&self) -> Result<WriteGuard, StoreError> {
        let key = self.probe_key();
        let found = match self
            .create_only(&key, PutPayload::from_static(b"1"))
            .await?
        {
            TriedWrite::NotImplemented => WriteGuard::NotImplemented,
            TriedWrite::Done(_) => {
                let again = self.create_only(&key, PutPayload::from_static(b"2")).await;
                // The object goes in any case.
                let deleted = self.delete(&key).await;
                let found = told_by(again?);
                deleted?;
                found
            }
        };
        self.seen.found(found);
        Ok(found)
    }

    fn probe_key(&self) -> String {
        let mut name = [0; 16];
        // A key that exists already would show that too: both writes would find it.
        let _ = SystemRandom::new().fill(&mut name);
        let name = u128::from_be_bytes(name);
        let key = format!("{}/{PROBES}/{name:032x}", self.prefix());
        key.trim_start_matches('/').to_owned()
    }
}

/// What the second write of a new key shows.
fn told_by(again: TriedWrite) -> WriteGuard {
    match again {
        TriedWrite::Done(Created::Before) => WriteGuard::CreateOnly,
        TriedWrite::Done(Created::Now) => WriteGuard::Overwrites,
        TriedWrite::NotImplemented => WriteGuard::NotImplemented,
    }
}

#[cfg(test)]
mod tests;
