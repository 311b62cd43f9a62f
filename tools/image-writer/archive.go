// OCI layouts (index, blobs), as a folder or in one tar file.
//
// Does not: leave half of one; it is renamed into place when it is whole.
package main

import (
	"archive/tar"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

func writeArchive(file, reference string, image v1.Image) error {
	work, err := os.MkdirTemp(filepath.Dir(file), ".image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	folder, err := layout.Write(filepath.Join(work, "layout"), empty.Index)
	if err != nil {
		return err
	}
	if err := folder.AppendImage(image, named(reference, reference)); err != nil {
		return err
	}
	whole := filepath.Join(work, "archive.tar")
	if err := packFolder(whole, string(folder)); err != nil {
		return err
	}
	return os.Rename(whole, file)
}

// writeLayout writes a folder whose index.json names one index. A tag names it there, as the OCI's layout wants, and tools that copy layouts.
func writeLayout(folder, reference string, index v1.ImageIndex) error {
	tagged, err := name.NewTag(reference)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(folder), ".layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	whole, err := layout.Write(filepath.Join(work, "layout"), empty.Index)
	if err != nil {
		return err
	}
	if err := whole.AppendIndex(index, named(reference, tagged.TagStr())); err != nil {
		return err
	}
	return os.Rename(string(whole), folder)
}

// named has both annotations: containerd reads the first, other tools the second.
func named(full, short string) layout.Option {
	return layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          full,
		"org.opencontainers.image.ref.name": short,
	})
}

func packFolder(file, folder string) error {
	output, err := os.Create(file)
	if err != nil {
		return err
	}
	defer output.Close()
	archive := tar.NewWriter(output)
	if err := archive.AddFS(os.DirFS(folder)); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return output.Close()
}
