// Writes a container image as an OCI archive, and pushes it to a registry when asked to.
//
// Does: make an image of root file system archives and of files and folders of this machine, one
// layer each, in the order of the flags.
// Does not: run anything inside an image, and needs no container engine.
// Invariant: the same inputs give the same bytes (names in order, no times, owned by root).
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "image writer:", err)
		os.Exit(1)
	}
}

func run() error {
	reference := flag.String("name", "", "name of the image, with its tag")
	archive := flag.String("out", "", "write an OCI archive to this file")
	push := flag.Bool("push", false, "push the image to the registry in its name")
	var config v1.Config
	flag.StringVar(&config.User, "user", "", "user that the image runs as")
	flag.StringVar(&config.WorkingDir, "workdir", "", "directory that the image runs in")
	flag.Func("entrypoint", "one word of the entry point; repeated", appendTo(&config.Entrypoint))
	flag.Func("cmd", "one word of the default arguments; repeated", appendTo(&config.Cmd))
	flag.Func("env", "NAME=VALUE; repeated", appendTo(&config.Env))
	var layers []v1.Layer
	addLayer := func(open func(string) (v1.Layer, error)) func(string) error {
		return func(source string) error {
			layer, err := open(source)
			if err == nil {
				layers = append(layers, layer)
			}
			return err
		}
	}
	flag.Func("rootfs", "a tar archive as a layer; repeated", addLayer(archiveLayer))
	flag.Func("add", "SOURCE=/DESTINATION, a file or a folder, as a layer; repeated", addLayer(copyLayer))
	flag.Parse()
	if *reference == "" || (*archive == "" && !*push) || flag.NArg() > 0 {
		return errors.New("-name, and -out or -push, are needed, and nothing but flags")
	}

	image, err := assemble(config, layers)
	if err != nil {
		return err
	}
	if *archive != "" {
		if err := writeArchive(*archive, *reference, image); err != nil {
			return err
		}
	}
	if !*push {
		return nil
	}
	target, err := name.ParseReference(*reference)
	if err != nil {
		return err
	}
	return remote.Write(target, image)
}

func assemble(config v1.Config, layers []v1.Layer) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, layers...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS = "amd64", "linux"
	file.Config = config
	return mutate.ConfigFile(image, file)
}

func appendTo(list *[]string) func(string) error {
	return func(value string) error {
		*list = append(*list, value)
		return nil
	}
}

func splitCopy(source string) (from, to string, err error) {
	from, to, found := strings.Cut(source, "=")
	if !found || !strings.HasPrefix(to, "/") {
		return "", "", fmt.Errorf("%q is not SOURCE=/DESTINATION", source)
	}
	return from, strings.TrimPrefix(to, "/"), nil
}
