// What is published, down to its bytes: one index of both platforms, and the same files from the same programs.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

var bothPlatforms = []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}

// layoutOf writes the layout of a program for both platforms, and answers with its folder.
func layoutOf(t *testing.T) string {
	t.Helper()
	var parts []part
	for _, platform := range bothPlatforms {
		program := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(program, []byte("program for "+platform.String()), 0o755); err != nil {
			t.Fatal(err)
		}
		layer, err := copyLayer(program + "=/phpprof")
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, part{platform: platform, layers: []v1.Layer{layer}})
	}
	index, err := assembleIndex(v1.Config{Entrypoint: []string{"/phpprof"}}, parts)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "layout")
	if err := writeLayout(folder, "phpprof.dev/phpprof:0.1.0", index); err != nil {
		t.Fatal(err)
	}
	return folder
}

func sumsBelow(t *testing.T, folder string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(folder, file))
		sum := sha256.Sum256(content)
		sums[file] = hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

func TestALayoutHasOneIndexOfBothPlatforms(t *testing.T) {
	top, err := layout.ImageIndexFromPath(layoutOf(t))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].MediaType != types.OCIImageIndex {
		t.Fatalf("index.json names %v", manifest.Manifests)
	}
	if tag := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; tag != "0.1.0" {
		t.Errorf("the tag is %q", tag)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []v1.Platform
	for _, descriptor := range images.Manifests {
		platforms = append(platforms, *descriptor.Platform)
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != descriptor.Platform.Architecture || config.OS != "linux" || !config.Created.IsZero() {
			t.Errorf("the config of %v says %s/%s, created %v", descriptor.Platform, config.OS, config.Architecture, config.Created)
		}
	}
	if !reflect.DeepEqual(platforms, bothPlatforms) {
		t.Errorf("the index has %v", platforms)
	}
}

func TestTheSameProgramsGiveTheSameBytes(t *testing.T) {
	first, second := sumsBelow(t, layoutOf(t)), sumsBelow(t, layoutOf(t))
	if !reflect.DeepEqual(first, second) {
		t.Errorf("%v is not %v", first, second)
	}
}
