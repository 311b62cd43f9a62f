// The components of a program, as an SPDX 2.3 document: the crates that are linked into it on its platform, Rust's standard library, and the scripts
// that it serves.
package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// program describes the program of a document.
type program struct {
	Name, Version, Arch, SHA256, Rust string
}

// component is a part of a program, by its package URL.
type component struct {
	Name, Version, Licence, PURL, SHA256 string
}

type spdxDocument struct {
	SPDXVersion       string             `json:"spdxVersion"`
	DataLicense       string             `json:"dataLicense"`
	SPDXID            string             `json:"SPDXID"`
	Name              string             `json:"name"`
	DocumentNamespace string             `json:"documentNamespace"`
	CreationInfo      spdxCreation       `json:"creationInfo"`
	Packages          []spdxPackage      `json:"packages"`
	Relationships     []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	SPDXID           string         `json:"SPDXID"`
	Name             string         `json:"name"`
	VersionInfo      string         `json:"versionInfo"`
	DownloadLocation string         `json:"downloadLocation"`
	FilesAnalyzed    bool           `json:"filesAnalyzed"`
	LicenseConcluded string         `json:"licenseConcluded"`
	LicenseDeclared  string         `json:"licenseDeclared"`
	CopyrightText    string         `json:"copyrightText"`
	Checksums        []spdxChecksum `json:"checksums,omitempty"`
	ExternalRefs     []spdxRef      `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm     string `json:"algorithm"`
	ChecksumValue string `json:"checksumValue"`
}

type spdxRef struct {
	ReferenceCategory string `json:"referenceCategory"`
	ReferenceType     string `json:"referenceType"`
	ReferenceLocator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	SPDXElementID      string `json:"spdxElementId"`
	RelationshipType   string `json:"relationshipType"`
	RelatedSPDXElement string `json:"relatedSpdxElement"`
}

// A line of cargo tree --prefix none --format '{p}|{l}': name, version, a path or (*), licence.
var treeLine = regexp.MustCompile(`^(\S+) v(\S+)( \([^)]*\))*\|([^|]*?)( \(\*\))?$`)

// A package of Cargo.lock that comes from a registry.
var lockEntry = regexp.MustCompile(`(?m)^name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "([0-9a-f]{64})"$`)

// crates reads the output of cargo tree, each crate once, with the checksums of Cargo.lock. The project's own crates have none.
func crates(tree, lock string) ([]component, error) {
	sums := map[string]string{}
	for _, entry := range lockEntry.FindAllStringSubmatch(lock, -1) {
		sums[entry[1]+" "+entry[2]] = entry[3]
	}
	var found []component
	for line := range strings.Lines(tree) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		match := treeLine.FindStringSubmatch(line)
		if match == nil {
			return nil, fmt.Errorf("cargo tree says %q, which is not NAME vVERSION|LICENCE", line)
		}
		name, version := match[1], match[2]
		found = append(found, component{
			Name: name, Version: version, Licence: strings.ReplaceAll(match[4], "/", " OR "),
			PURL: "pkg:cargo/" + name + "@" + version, SHA256: sums[name+" "+version],
		})
	}
	byName := func(a, b component) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	}
	slices.SortFunc(found, byName)
	return slices.Compact(found), nil
}

// A heading of profile/assets/LICENSES.
var scriptHeading = regexp.MustCompile(`(?m)^===== (\S+) (\S+), (\S+) =====$`)

// scripts are the packages of npm in the flame graph page.
func scripts(licences string) []component {
	var found []component
	for _, heading := range scriptHeading.FindAllStringSubmatch(licences, -1) {
		found = append(found, component{
			Name: heading[1], Version: heading[2], Licence: heading[3], PURL: "pkg:npm/" + heading[1] + "@" + heading[2],
		})
	}
	return found
}

func document(program program, components []component, created time.Time) spdxDocument {
	full := fmt.Sprintf("%s-%s-linux-%s", program.Name, program.Version, program.Arch)
	whole := packageOf("SPDXRef-Program", component{
		Name: program.Name, Version: program.Version, Licence: "Apache-2.0", SHA256: program.SHA256,
	})
	document := spdxDocument{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT",
		Name: full,
		// The program's checksum makes the document unique, as SPDX requires, and the same for the same program.
		DocumentNamespace: "https://phpprof.dev/spdx/" + full + "-" + program.SHA256,
		CreationInfo:      spdxCreation{created.UTC().Format(time.RFC3339), []string{"Organization: phpprof", "Tool: phpprof-release-tool-" + program.Version}},
		Packages:          []spdxPackage{whole},
		Relationships:     []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Program"}},
	}
	standard := component{Name: "rust-std", Version: program.Rust, Licence: "MIT OR Apache-2.0", PURL: "pkg:generic/rust-std@" + program.Rust}
	for i, part := range append([]component{standard}, components...) {
		if part.PURL == "pkg:cargo/"+program.Name+"@"+program.Version {
			continue
		}
		id := fmt.Sprintf("SPDXRef-Part-%d", i)
		kind := "STATIC_LINK"
		if strings.HasPrefix(part.PURL, "pkg:npm/") {
			kind = "CONTAINS"
		}
		document.Packages = append(document.Packages, packageOf(id, part))
		document.Relationships = append(document.Relationships, spdxRelationship{"SPDXRef-Program", kind, id})
	}
	return document
}

func packageOf(id string, part component) spdxPackage {
	found := spdxPackage{
		SPDXID: id, Name: part.Name, VersionInfo: part.Version, DownloadLocation: "NOASSERTION",
		LicenseConcluded: "NOASSERTION", LicenseDeclared: cmp.Or(part.Licence, "NOASSERTION"), CopyrightText: "NOASSERTION",
	}
	if part.SHA256 != "" {
		found.Checksums = []spdxChecksum{{"SHA256", part.SHA256}}
		if strings.HasPrefix(part.PURL, "pkg:cargo/") {
			found.DownloadLocation = fmt.Sprintf("https://static.crates.io/crates/%s/%s-%s.crate", part.Name, part.Name, part.Version)
		}
	}
	if part.PURL != "" {
		found.ExternalRefs = []spdxRef{{"PACKAGE-MANAGER", "purl", part.PURL}}
	}
	return found
}
