package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// File is an entry of an archive.
type File struct {
	Name string
	// Mode has the permissions; 0 means 0644.
	Mode int64
	// Content is the file's content. Link is the target of a symbolic link, which has no content.
	Content []byte
	Link    string
}

// Tar returns an uncompressed archive. It has entries for the directories of its files.
func Tar(files []File, at time.Time) ([]byte, error) {
	files = slices.Clone(files)
	folders := map[string]bool{}
	for _, f := range files {
		for dir := path.Dir(f.Name); dir != "." && !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	for dir := range folders {
		files = append(files, File{Name: dir + "/", Mode: 0o755})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Mode: f.Mode, Size: int64(len(f.Content)), ModTime: at.UTC(), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		switch {
		case f.Link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
		case strings.HasSuffix(f.Name, "/"):
			h.Typeflag = tar.TypeDir
		case h.Mode == 0:
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// Gzip compresses, without a name or a time in the header.
func Gzip(content []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}

// TarGz is [Tar] and [Gzip].
func TarGz(files []File, at time.Time) ([]byte, error) {
	content, err := Tar(files, at)
	if err != nil {
		return nil, err
	}
	return Gzip(content)
}

// Folder returns the files below a directory, and puts prefix before their names. It follows links
// to directories. It keeps links to files if links is set, and follows them otherwise.
func Folder(folder, prefix string, links bool) ([]File, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, entry := range entries {
		place, name := filepath.Join(folder, entry.Name()), path.Join(prefix, entry.Name())
		info, err := os.Stat(place)
		if err != nil {
			return nil, err
		}
		switch {
		case info.IsDir():
			below, err := Folder(place, name, links)
			if err != nil {
				return nil, err
			}
			files = append(files, below...)
		case links && entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(place)
			if err != nil {
				return nil, err
			}
			files = append(files, File{Name: name, Link: target})
		default:
			content, err := os.ReadFile(place)
			if err != nil {
				return nil, err
			}
			// Only two modes, whatever the umask of the clone.
			mode := int64(0o644)
			if info.Mode()&0o100 != 0 {
				mode = 0o755
			}
			files = append(files, File{Name: name, Mode: mode, Content: content})
		}
	}
	return files, nil
}

var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

// Chart packages the chart in a directory for a version, as `helm package` does, with the targets
// of its links.
func Chart(folder, version string, at time.Time) ([]byte, error) {
	files, err := Folder(folder, "flotilla", false)
	if err != nil {
		return nil, err
	}
	stamped := false
	for i, f := range files {
		if f.Name != "flotilla/Chart.yaml" {
			continue
		}
		stamped = chartVersion.Match(f.Content) && appVersion.Match(f.Content)
		content := chartVersion.ReplaceAll(f.Content, []byte("version: "+strings.TrimPrefix(version, "v")))
		files[i].Content = appVersion.ReplaceAll(content, []byte("appVersion: "+version))
	}
	if !stamped {
		return nil, fmt.Errorf("%s: Chart.yaml must have a version and an appVersion", folder)
	}
	return TarGz(files, at)
}
