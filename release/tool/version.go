// The version is the same everywhere: in the workspace, the chart, the images in examples and documents, and the tag.
package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// stated is a version in some place of the repository.
type stated struct {
	Place   string
	Version string
}

// places are files with one version each.
var places = []struct {
	file, what string
	pattern    *regexp.Regexp
}{
	{"Cargo.toml", "workspace.package.version", regexp.MustCompile(`(?m)^version = "(.+)"$`)},
	{"charts/phpprof/Chart.yaml", "version", regexp.MustCompile(`(?m)^version: "?([^"\n]+)"?$`)},
	{"charts/phpprof/Chart.yaml", "appVersion", regexp.MustCompile(`(?m)^appVersion: "?([^"\n]+)"?$`)},
	{"contract/comment.json", "phpprof", regexp.MustCompile(`^\{"phpprof":"([^"]+)"`)},
}

// ours are the product's images, with a tag.
var ours = regexp.MustCompile(`phpprof\.dev/(?:operator|phpprof|kubectl-phpprof):([0-9][0-9A-Za-z.+-]*)`)

func findVersions(root fs.FS) ([]stated, error) {
	var found []stated
	for _, place := range places {
		text, err := fs.ReadFile(root, place.file)
		if err != nil {
			return nil, err
		}
		match := place.pattern.FindSubmatch(text)
		if match == nil {
			return nil, fmt.Errorf("%s has no %s", place.file, place.what)
		}
		found = append(found, stated{place.file + " " + place.what, string(match[1])})
	}
	for _, folder := range []string{"charts", "docs", "examples"} {
		err := fs.WalkDir(root, folder, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || (path.Ext(file) != ".md" && path.Ext(file) != ".yaml") {
				return err
			}
			text, err := fs.ReadFile(root, file)
			for _, match := range ours.FindAllSubmatch(text, -1) {
				found = append(found, stated{file, string(match[1])})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// agreed is the version in all places and the tag; without a tag, in all places.
func agreed(found []stated, tag string) (string, error) {
	version := found[0].Version
	if tag != "" {
		found = append(found, stated{"the tag " + tag, strings.TrimPrefix(tag, "v")})
	}
	var others []string
	for _, one := range found[1:] {
		if one.Version != version {
			others = append(others, fmt.Sprintf("%s has %s", one.Place, one.Version))
		}
	}
	if len(others) > 0 {
		return "", fmt.Errorf("%s has %s, but %s; write one version everywhere (docs/guides/releasing.md)", found[0].Place, version, strings.Join(others, ", "))
	}
	return version, nil
}
