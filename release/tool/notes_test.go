package main

import (
	"os"
	"strings"
	"testing"
)

const changelog = `# Changelog

## [Unreleased]

## [0.2.0] - 2026-12-01

### Added

- A release.

## [0.1.0]

- The first one.
`

func TestNotesAreTheSectionOfTheirVersion(t *testing.T) {
	rows := []struct{ version, notes, refusal string }{
		{"0.2.0", "### Added\n\n- A release.", ""},
		{"0.1.0", "- The first one.", ""},
		{"Unreleased", "", "CHANGELOG.md says nothing below ## [Unreleased]"},
		{"0.3.0", "", "CHANGELOG.md has no section ## [0.3.0]; rename ## [Unreleased] (docs/guides/releasing.md)"},
	}
	for _, row := range rows {
		text, err := notes(changelog, row.version)
		if text != row.notes || (err == nil) != (row.refusal == "") || (err != nil && err.Error() != row.refusal) {
			t.Errorf("%s: %q, %v", row.version, text, err)
		}
	}
}

func TestTheChangelogOfTheRepositoryIsRead(t *testing.T) {
	content, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := notes(string(content), "Unreleased")
	if err != nil || !strings.Contains(text, "\n### ") {
		t.Errorf("%.40q, %v", text, err)
	}
}
