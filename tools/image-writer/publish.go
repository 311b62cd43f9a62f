// Pushing: an image as it was made, or the index of a layout, byte for byte.
//
// Does: log in as docker's configuration says.
// Does not: put another image below a tag that a release has.
package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

var login = remote.WithAuthFromKeychain(authn.DefaultKeychain)

func pushImage(reference string, image v1.Image) error {
	target, err := name.ParseReference(reference)
	if err != nil {
		return err
	}
	return remote.Write(target, image, login)
}

// publishLayout pushes the one index of a layout, and answers with what it did.
func publishLayout(folder, reference string) (string, error) {
	target, err := name.NewTag(reference)
	if err != nil {
		return "", err
	}
	index, digest, err := onlyIndex(folder)
	if err != nil {
		return "", fmt.Errorf("%s: %w", folder, err)
	}
	named := fmt.Sprintf("%s@%s", target, digest)
	there, err := remote.Head(target, login)
	var refused *transport.Error
	switch {
	case err == nil && there.Digest == digest:
		return named + " is there already", nil
	case err == nil:
		return "", fmt.Errorf("%s is there already, and is another image (%s); release another version", target, there.Digest)
	case !errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound:
		return "", err
	}
	return named + " pushed", remote.WriteIndex(target, index, login)
}

func onlyIndex(folder string) (v1.ImageIndex, v1.Hash, error) {
	top, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, v1.Hash{}, err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return nil, v1.Hash{}, err
	}
	if len(manifest.Manifests) != 1 || !manifest.Manifests[0].MediaType.IsIndex() {
		return nil, v1.Hash{}, errors.New("the layout does not have one index")
	}
	digest := manifest.Manifests[0].Digest
	index, err := top.ImageIndex(digest)
	return index, digest, err
}
