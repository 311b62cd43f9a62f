//! Writes a provider's new tokens into the kubeconfig that has the user.
//!
//! Invariant: the file is replaced whole, with its mode, under the lock that kubectl takes
//! (clientcmd's `lockFile`); nothing but the named values changes in its meaning.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_yaml::Value;

/// As long as another program may hold the lock.
const PATIENCE: Duration = Duration::from_secs(2);

/// A user of a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptUser {
    pub path: PathBuf,
    pub user: String,
}

#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error("the new token was not written to {path}")]
    File {
        path: String,
        #[source]
        error: std::io::Error,
    },
    #[error("the new token was not written: {0}.lock exists; remove it if no kubectl is running")]
    Locked(String),
    #[error("the new token was not written: {0} is no longer a kubeconfig with this user")]
    Changed(String),
}

pub fn write(place: &KeptUser, values: &[(&str, String)]) -> Result<(), KeepError> {
    let wrong = |error| KeepError::File {
        path: place.path.display().to_string(),
        error,
    };
    // A link stays one.
    let path = fs::canonicalize(&place.path).map_err(wrong)?;
    let _lock = Lock::take(&place.path)
        .map_err(wrong)?
        .ok_or_else(|| KeepError::Locked(place.path.display().to_string()))?;
    let text = fs::read_to_string(&path).map_err(wrong)?;
    let changed = with_values(&text, &place.user, values)
        .ok_or_else(|| KeepError::Changed(place.path.display().to_string()))?;
    replace(&path, changed.as_bytes()).map_err(wrong)
}

/// The kubeconfig with these values in the user's provider.
fn with_values(text: &str, user: &str, values: &[(&str, String)]) -> Option<String> {
    let mut whole: Value = serde_yaml::from_str(text).ok()?;
    let users = whole.get_mut("users")?.as_sequence_mut()?;
    let entry = users
        .iter_mut()
        .find(|it| it.get("name").and_then(Value::as_str) == Some(user))?;
    let config = entry
        .get_mut("user")?
        .get_mut("auth-provider")?
        .get_mut("config")?
        .as_mapping_mut()?;
    for (name, value) in values {
        config.insert((*name).into(), value.as_str().into());
    }
    serde_yaml::to_string(&whole).ok()
}

fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mode = fs::metadata(path)?.permissions();
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".phpprof-{}", std::process::id()));
    let beside = PathBuf::from(name);
    let written = (|| {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&beside)?;
        file.write_all(bytes)?;
        file.set_permissions(mode)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

struct Lock(PathBuf);

impl Lock {
    /// None: another program has it.
    fn take(path: &Path) -> std::io::Result<Option<Self>> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
        let begin = Instant::now();
        loop {
            match OpenOptions::new().write(true).create_new(true).open(&lock) {
                Ok(_) => return Ok(Some(Lock(lock))),
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(error);
                }
                Err(_) if begin.elapsed() > PATIENCE => return Ok(None),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "kind: Config\nusers:\n- name: a\n  user: {token: t}\n- name: b\n  user:\n    auth-provider:\n      name: oidc\n      config: {id-token: old, client-id: c}\n";

    #[test]
    fn only_the_named_values_of_the_user_change() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        let path = folder.path().join("config");
        fs::write(&real, TEXT).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &path).unwrap();
        let place = KeptUser {
            path: path.clone(),
            user: "b".to_owned(),
        };
        write(
            &place,
            &[
                ("id-token", "new".to_owned()),
                ("refresh-token", "r".to_owned()),
            ],
        )
        .unwrap();
        let read = |text: &str| serde_yaml::from_str::<Value>(text).unwrap();
        let wanted = TEXT.replace("id-token: old", "id-token: new, refresh-token: r");
        assert_eq!(read(&fs::read_to_string(&real).unwrap()), read(&wanted));
        assert_eq!(
            fs::metadata(&real).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            2,
            "a lock or a part is left"
        );
    }

    #[test]
    fn a_foreign_lock_or_lost_user_prevents_writing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, TEXT).unwrap();
        let place = |user: &str| KeptUser {
            path: path.clone(),
            user: user.to_owned(),
        };
        assert!(matches!(
            write(&place("a"), &[]),
            Err(KeepError::Changed(_))
        ));
        fs::write(folder.path().join("config.lock"), "").unwrap();
        assert!(matches!(write(&place("b"), &[]), Err(KeepError::Locked(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), TEXT);
        assert!(folder.path().join("config.lock").exists());
    }
}
