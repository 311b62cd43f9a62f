package main

import (
	"bytes"
	"testing"
	"testing/fstest"
)

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func layoutOf(mediaType string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(`{"manifests":[{"mediaType":"` + mediaType + `","digest":"sha256:` + digest + `"}]}`)}
}

func TestAStatementNamesEveryFileAndImageByItsDigest(t *testing.T) {
	folder := fstest.MapFS{
		"phpprof-0.1.0.tgz":           {Data: []byte("chart")},
		"images/operator/index.json":  layoutOf("application/vnd.oci.image.index.v1+json"),
		"images/operator/blobs/other": {Data: []byte("blob")},
	}
	found, err := subjects(folder, "registry.example.org/phpprof")
	if err != nil {
		t.Fatal(err)
	}
	made := statement(build{
		Version: "0.1.0", Registry: "registry.example.org/phpprof", Source: "git+https://example.org/phpprof", Commit: "6d73374",
		Changed: true, Builder: "https://ci.example.org/1", LockSHA256: digest, Tools: map[string]string{"rustc": "1.95.0"},
	}, found)
	var text bytes.Buffer
	if err := printJSON(&text, made); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/provenance.json", text.Bytes())
}

func TestALayoutWithoutOneIndexIsRefused(t *testing.T) {
	folder := fstest.MapFS{"images/operator/index.json": layoutOf("application/vnd.oci.image.manifest.v1+json")}
	if _, err := subjects(folder, "phpprof.dev"); err == nil {
		t.Error("it was taken")
	}
}
