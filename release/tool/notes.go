// Release notes: the changelog's section of a version.
package main

import (
	"fmt"
	"strings"
)

// notes is the text below the heading `## [VERSION]`, up to the next heading of that level.
func notes(changelog, version string) (string, error) {
	var section []string
	isIn, isFound := false, false
	for line := range strings.Lines(changelog) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "## ") {
			isIn = strings.HasPrefix(line, "## ["+version+"]")
			isFound = isFound || isIn
			continue
		}
		if isIn {
			section = append(section, line)
		}
	}
	text := strings.TrimSpace(strings.Join(section, "\n"))
	switch {
	case !isFound:
		return "", fmt.Errorf("CHANGELOG.md has no section ## [%s]; rename ## [Unreleased] (docs/guides/releasing.md)", version)
	case text == "":
		return "", fmt.Errorf("CHANGELOG.md says nothing below ## [%s]", version)
	}
	return text, nil
}
