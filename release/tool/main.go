// Version, notes, components and provenance of a release.
//
// Does: read files of the repository and the input of release/build, and print.
// Does not: build or publish anything.
// Invariant: the same inputs give the same bytes. Times are those of the commit.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

const usage = `usage: release-tool VERB, in the root of the repository

  version [TAG]      print the version, if all parts of the repository and the tag agree on it
  notes VERSION      print the changelog's section of that version
  sbom               print the SPDX document of a program, by the lines of cargo tree on the standard input
  provenance FOLDER  print the SLSA provenance of the files and images in that folder
`

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release-tool:", err)
		os.Exit(1)
	}
}

func run(words []string, in io.Reader, out io.Writer) error {
	if len(words) == 0 {
		return errors.New(usage)
	}
	switch verb, words := words[0], words[1:]; {
	case verb == "version" && len(words) <= 1:
		found, err := findVersions(os.DirFS("."))
		if err != nil {
			return err
		}
		version, err := agreed(found, append(words, "")[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, version)
		return err
	case verb == "notes" && len(words) == 1:
		changelog, err := os.ReadFile("CHANGELOG.md")
		if err != nil {
			return err
		}
		section, err := notes(string(changelog), words[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, section)
		return err
	case verb == "sbom":
		return printSBOM(words, in, out)
	case verb == "provenance" && len(words) >= 1:
		return printProvenance(words[0], words[1:], out)
	default:
		return errors.New(usage)
	}
}

func printSBOM(words []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	var program program
	flags.StringVar(&program.Name, "name", "", "name of the program")
	flags.StringVar(&program.Version, "version", "", "version of the release")
	flags.StringVar(&program.Arch, "arch", "", "amd64 or arm64")
	flags.StringVar(&program.SHA256, "sha256", "", "SHA-256 of the program")
	flags.StringVar(&program.Rust, "rust", "", "version of Rust, whose standard library the program has")
	licences := flags.String("licences", "", "file with the licences of scripts that are part of the program")
	epoch := flags.Int64("epoch", 0, "time of the commit, in Unix seconds")
	if err := flags.Parse(words); err != nil {
		return err
	}
	tree, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	lock, err := os.ReadFile("Cargo.lock")
	if err != nil {
		return err
	}
	packages, err := crates(string(tree), string(lock))
	if err != nil {
		return err
	}
	if *licences != "" {
		text, err := os.ReadFile(*licences)
		if err != nil {
			return err
		}
		packages = append(packages, scripts(string(text))...)
	}
	return printJSON(out, document(program, packages, time.Unix(*epoch, 0)))
}

func printProvenance(folder string, words []string, out io.Writer) error {
	flags := flag.NewFlagSet("provenance", flag.ContinueOnError)
	var build build
	flags.StringVar(&build.Version, "version", "", "version of the release")
	flags.StringVar(&build.Registry, "registry", "", "prefix of the images' names")
	flags.StringVar(&build.Source, "source", "", "address of the repository")
	flags.StringVar(&build.Commit, "commit", "", "commit that was built")
	flags.BoolVar(&build.Changed, "changed", false, "the tree had changes that were not committed")
	flags.StringVar(&build.Builder, "builder", "", "who has built it, as an address")
	flags.Func("tool", "NAME=VERSION of a compiler or packer; repeated", build.addTool)
	if err := flags.Parse(words); err != nil {
		return err
	}
	lock, err := os.ReadFile("Cargo.lock")
	if err != nil {
		return err
	}
	build.LockSHA256 = sum(lock)
	found, err := subjects(os.DirFS(filepath.Clean(folder)), build.Registry)
	if err != nil {
		return err
	}
	return printJSON(out, statement(build, found))
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
