// The sources of a release, as an in-toto statement with the SLSA v1 predicate. It is not signed: the CI service, which is the builder, does that.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

const buildType = "https://phpprof.dev/docs/guides/releasing.md#make-release"

// build describes the sources of a release, and its builder.
type build struct {
	Version, Registry, Source, Commit, Builder, LockSHA256 string
	Changed                                                bool
	Tools                                                  map[string]string
}

func (build *build) addTool(text string) error {
	name, version, found := strings.Cut(text, "=")
	if !found {
		return fmt.Errorf("%q is not NAME=VERSION", text)
	}
	if build.Tools == nil {
		build.Tools = map[string]string{}
	}
	build.Tools[name] = version
	return nil
}

type resource struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest"`
	Annotations map[string]any    `json:"annotations,omitempty"`
}

type inTotoStatement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     predicate  `json:"predicate"`
}

type predicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		InternalParameters   map[string]string `json:"internalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

func statement(build build, subjects []resource) inTotoStatement {
	made := inTotoStatement{
		Type: "https://in-toto.io/Statement/v1", Subject: subjects, PredicateType: "https://slsa.dev/provenance/v1",
	}
	definition := &made.Predicate.BuildDefinition
	definition.BuildType = buildType
	definition.ExternalParameters = map[string]string{"version": build.Version, "registry": build.Registry}
	definition.InternalParameters = build.Tools
	source := resource{URI: build.Source, Digest: map[string]string{"gitCommit": build.Commit}}
	if build.Changed {
		source.Annotations = map[string]any{"uncommittedChanges": true}
	}
	lock := resource{Name: "Cargo.lock", Digest: map[string]string{"sha256": build.LockSHA256}}
	definition.ResolvedDependencies = []resource{source, lock}
	made.Predicate.RunDetails.Builder.ID = build.Builder
	return made
}

// subjects are the files of a release, and its images by the digests of their indexes.
func subjects(folder fs.FS, registry string) ([]resource, error) {
	entries, err := fs.ReadDir(folder, ".")
	if err != nil {
		return nil, err
	}
	var found []resource
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		content, err := fs.ReadFile(folder, entry.Name())
		if err != nil {
			return nil, err
		}
		found = append(found, resource{Name: entry.Name(), Digest: map[string]string{"sha256": sum(content)}})
	}
	images, err := fs.Glob(folder, "images/*/index.json")
	if err != nil {
		return nil, err
	}
	for _, file := range images {
		content, err := fs.ReadFile(folder, file)
		if err != nil {
			return nil, err
		}
		digest, err := digestOf(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		name := registry + "/" + path.Base(path.Dir(file))
		found = append(found, resource{Name: name, Digest: map[string]string{"sha256": digest}})
	}
	return found, nil
}

// digestOf is the digest of the one index that an image layout's index.json names.
func digestOf(layout []byte) (string, error) {
	var index struct {
		Manifests []struct{ MediaType, Digest string }
	}
	if err := json.Unmarshal(layout, &index); err != nil {
		return "", err
	}
	if len(index.Manifests) != 1 || index.Manifests[0].MediaType != "application/vnd.oci.image.index.v1+json" {
		return "", errors.New("it does not name one index")
	}
	digest, found := strings.CutPrefix(index.Manifests[0].Digest, "sha256:")
	if !found {
		return "", fmt.Errorf("the digest %s is not by SHA-256", index.Manifests[0].Digest)
	}
	return digest, nil
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}
