//! Names of files in a volume.

use super::*;

#[test]
fn file_has_no_volume_version() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = put(&mut memory, 1, "total", true);
    memory.put_string(FILE, "/srv/..2026_11_25_03_36_07.15/a.php");
    names(&mut codes, &memory, &mut maps, &[frame]);
    let entry = maps.local.by_func[&frame.func];
    let name = codes.name(entry.code, false);
    assert_eq!(codes.names.get(name).file, "/srv/a.php");
}
