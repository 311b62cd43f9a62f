package main

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func TestALayoutIsPublishedOnceAndPulledByDigestForBothPlatforms(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	reference := strings.TrimPrefix(server.URL, "http://") + "/phpprof/operator:0.1.0"
	folder := layoutOf(t)
	_, digest, err := onlyIndex(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{" pushed", " is there already"} {
		said, err := publishLayout(folder, reference)
		if err != nil || said != reference+"@"+digest.String()+end {
			t.Errorf("%q, %v", said, err)
		}
	}
	byDigest, err := name.NewDigest(strings.TrimSuffix(reference, ":0.1.0") + "@" + digest.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range bothPlatforms {
		image, err := remote.Image(byDigest, remote.WithPlatform(platform))
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil || config.Architecture != platform.Architecture {
			t.Errorf("%v: %v, %v", platform, config, err)
		}
	}
}

func TestAnotherImageOfThatTagIsNotReplaced(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	reference := strings.TrimPrefix(server.URL, "http://") + "/phpprof/operator:0.1.0"
	image, err := assemble(v1.Config{}, part{platform: bothPlatforms[0]})
	if err != nil {
		t.Fatal(err)
	}
	if err := pushImage(reference, image); err != nil {
		t.Fatal(err)
	}
	if said, err := publishLayout(layoutOf(t), reference); err == nil || !strings.Contains(err.Error(), "release another version") {
		t.Errorf("%q, %v", said, err)
	}
}

func TestAFolderWithoutALayoutIsNotPublished(t *testing.T) {
	if said, err := publishLayout(t.TempDir(), "127.0.0.1:1/phpprof/operator:0.1.0"); err == nil {
		t.Error(said)
	}
}
