// The OCI archive: an image layout (index, blobs) in one tar file.
//
// Does not: leave half a file; the archive is renamed into place when it is whole.
package main

import (
	"archive/tar"
	"os"
	"path/filepath"

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
	// Both annotations: containerd reads the first, other tools the second.
	annotations := map[string]string{
		"io.containerd.image.name":          reference,
		"org.opencontainers.image.ref.name": reference,
	}
	if err := folder.AppendImage(image, layout.WithAnnotations(annotations)); err != nil {
		return err
	}
	whole := filepath.Join(work, "archive.tar")
	if err := packFolder(whole, string(folder)); err != nil {
		return err
	}
	return os.Rename(whole, file)
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
