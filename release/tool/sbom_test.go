package main

import (
	"bytes"
	"os"
	"testing"
	"time"
)

const tree = `phpprof v0.1.0 (/clone/profiler-image)|Apache-2.0
ring v0.17.14|Apache-2.0 AND ISC
anyhow v1.0.104|MIT/Apache-2.0
ring v0.17.14|Apache-2.0 AND ISC (*)
phpprof-zend v0.1.0 (/clone/profiler-image/zend) (*)|Apache-2.0
`

const lock = `[[package]]
name = "anyhow"
version = "1.0.104"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

[[package]]
name = "phpprof"
version = "0.1.0"

[[package]]
name = "ring"
version = "0.17.14"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
dependencies = [
 "cc",
]
`

const licences = "===== d3-array 3.2.5, ISC =====\n\nPermission to use\n"

func TestADocumentNamesWhatIsLinkedIntoAProgramOnce(t *testing.T) {
	parts, err := crates(tree, lock)
	if err != nil {
		t.Fatal(err)
	}
	of := program{Name: "phpprof", Version: "0.1.0", Arch: "arm64", SHA256: "cccc", Rust: "1.95.0"}
	document := document(of, append(parts, scripts(licences)...), time.Unix(1795461821, 0))
	var text bytes.Buffer
	if err := printJSON(&text, document); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/phpprof.spdx.json", text.Bytes())
}

func TestALineThatIsNoCrateIsRefused(t *testing.T) {
	if _, err := crates("error: no such package\n", lock); err == nil {
		t.Error("it was taken")
	}
}

// golden compares text with a file, which UPDATE=1 rewrites.
func golden(t *testing.T, file string, text []byte) {
	t.Helper()
	if os.Getenv("UPDATE") == "1" {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wanted, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, wanted) {
		t.Errorf("not as in %s; look at it, then write it by UPDATE=1 go test:\n%s", file, text)
	}
}
