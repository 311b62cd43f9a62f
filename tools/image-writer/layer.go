// Layers: from a tar archive as it is, and from files and folders of this machine.
//
// Does not: keep owners, times, or what is neither file, folder nor link.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

var layerOptions = []tarball.LayerOption{
	tarball.WithCompressionLevel(gzip.BestSpeed),
	tarball.WithMediaType(types.OCILayer),
	tarball.WithCompressedCaching,
}

func archiveLayer(file string) (v1.Layer, error) {
	return tarball.LayerFromFile(file, layerOptions...)
}

func copyLayer(source string) (v1.Layer, error) {
	from, to, err := splitCopy(source)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	if err := addParents(archive, to); err != nil {
		return nil, err
	}
	// WalkDir goes through each folder in the order of names, which makes the layer reproducible.
	err = filepath.WalkDir(from, func(file string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		return addEntry(archive, file, path.Join(to, filepath.ToSlash(inside)))
	})
	if err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}
	return tarball.LayerFromOpener(open, layerOptions...)
}

func addParents(archive *tar.Writer, to string) error {
	parts := strings.Split(path.Dir(to), "/")
	for i := range parts {
		folder := path.Join(parts[:i+1]...)
		if folder == "" || folder == "." {
			continue
		}
		header := &tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
	}
	return nil
}

func addEntry(archive *tar.Writer, file, to string) error {
	info, err := os.Lstat(file)
	if err != nil || to == "" || to == "." {
		return err
	}
	header := &tar.Header{Name: to, Mode: int64(info.Mode().Perm())}
	switch {
	case info.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, to+"/"
	case info.Mode()&fs.ModeSymlink != 0:
		header.Typeflag = tar.TypeSymlink
		if header.Linkname, err = os.Readlink(file); err != nil {
			return err
		}
	case info.Mode().IsRegular():
		header.Typeflag, header.Size = tar.TypeReg, info.Size()
	default:
		return nil
	}
	if err := archive.WriteHeader(header); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	content, err := os.Open(file)
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(archive, content)
	return err
}
