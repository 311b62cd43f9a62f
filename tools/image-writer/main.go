// Writes a container image as an OCI archive or, for several platforms, as an OCI layout, and pushes it to a registry when asked to.
//
// Does: make an image of root file system archives and of files and folders of this machine, one
// layer each, in the order of the flags. Layers after -platform are that platform's.
// Does not: run anything inside an image, and needs no container engine.
// Invariant: the same inputs give the same bytes (names in order, no times, owned by root).
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
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
	folder := flag.String("layout", "", "write an OCI layout of one index, with the images of all platforms, to this folder")
	push := flag.Bool("push", false, "push the image to the registry in its name")
	publish := flag.String("publish", "", "push the index of the OCI layout in this folder, unless the registry has another one by its name")
	var config v1.Config
	labels := map[string]string{}
	flag.Func("label", "NAME=VALUE, a label of the image; repeated", func(label string) error {
		name, value, found := strings.Cut(label, "=")
		if !found {
			return fmt.Errorf("%q is not NAME=VALUE", label)
		}
		labels[name] = value
		return nil
	})
	flag.StringVar(&config.User, "user", "", "user that the image runs as")
	flag.StringVar(&config.WorkingDir, "workdir", "", "directory that the image runs in")
	flag.Func("entrypoint", "one word of the entry point; repeated", appendTo(&config.Entrypoint))
	flag.Func("cmd", "one word of the default arguments; repeated", appendTo(&config.Cmd))
	flag.Func("env", "NAME=VALUE; repeated", appendTo(&config.Env))
	var parts []part
	flag.Func("platform", "platform of the layers that follow, for instance linux/arm64; repeated (default linux/amd64)", func(text string) error {
		platform, err := v1.ParsePlatform(text)
		if err == nil {
			parts = append(parts, part{platform: *platform})
		}
		return err
	})
	addLayer := func(open func(string) (v1.Layer, error)) func(string) error {
		return func(source string) error {
			layer, err := open(source)
			if len(parts) == 0 {
				parts = []part{{platform: v1.Platform{OS: "linux", Architecture: "amd64"}}}
			}
			last := &parts[len(parts)-1]
			last.layers = append(last.layers, layer)
			return err
		}
	}
	flag.Func("rootfs", "a tar archive as a layer; repeated", addLayer(archiveLayer))
	flag.Func("add", "SOURCE=/DESTINATION, a file or a folder, as a layer; repeated", addLayer(copyLayer))
	flag.Parse()
	config.Labels = labels
	if *publish != "" {
		said, err := publishLayout(*publish, *reference)
		if err == nil {
			fmt.Println(said)
		}
		return err
	}
	switch {
	case *reference == "" || flag.NArg() > 0 || (*archive == "" && *folder == "" && !*push):
		return errors.New("-name, and -out, -layout, -push or -publish, are needed, and nothing but flags")
	case len(parts) == 0:
		return errors.New("-rootfs or -add is needed: the image would be empty")
	case len(parts) > 1 && *folder == "":
		return errors.New("an image for several platforms goes to -layout")
	}

	if *folder != "" {
		index, err := assembleIndex(config, parts)
		if err != nil {
			return err
		}
		return writeLayout(*folder, *reference, index)
	}
	image, err := assemble(config, parts[0])
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
	return pushImage(*reference, image)
}

// part is what the image is on one platform.
type part struct {
	platform v1.Platform
	layers   []v1.Layer
}

func assemble(config v1.Config, part part) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, part.layers...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS = part.platform.Architecture, part.platform.OS
	file.Config = config
	return mutate.ConfigFile(image, file)
}

// assembleIndex makes one index of the images of all platforms, in the order of the flags.
func assembleIndex(config v1.Config, parts []part) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, part := range parts {
		image, err := assemble(config, part)
		if err != nil {
			return nil, err
		}
		platform := part.platform
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	return index, nil
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
