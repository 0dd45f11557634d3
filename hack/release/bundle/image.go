package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Platform is an operating system and an architecture, in Go's terms.
type Platform struct{ OS, Arch string }

func (p Platform) String() string { return p.OS + "/" + p.Arch }

// Image is one platform's part of an image.
type Image struct {
	Platform Platform
	Root     []File
}

const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// layout collects the blobs of an OCI image layout.
type layout struct{ files []File }

func (l *layout) add(mediaType string, content []byte) descriptor {
	digest := digest(content)
	l.files = append(l.files, File{Name: "blobs/" + strings.Replace(digest, ":", "/", 1), Content: content})
	return descriptor{MediaType: mediaType, Digest: digest, Size: len(content)}
}

func (l *layout) addJSON(mediaType string, x any) (descriptor, error) {
	content, err := json.Marshal(x)
	return l.add(mediaType, content), err
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// OCI returns an OCI archive with an index of one image for each platform. ENV and ENTRYPOINT come
// from the last stage of the Dockerfile.
func OCI(images []Image, dockerfile, version string, at time.Time) ([]byte, error) {
	run, err := runs(dockerfile)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{
		"org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.source": "https://github.com/flotilla-kube/flotilla",
	}
	run["Labels"] = labels
	l := &layout{}
	var manifests []descriptor
	for _, image := range images {
		content, err := Tar(image.Root, at)
		if err != nil {
			return nil, err
		}
		compressed, err := Gzip(content)
		if err != nil {
			return nil, err
		}
		config, err := l.addJSON(configType, map[string]any{
			"created": at.UTC().Format(time.RFC3339), "os": image.Platform.OS, "architecture": image.Platform.Arch, "config": run,
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(content)}},
		})
		if err != nil {
			return nil, err
		}
		manifest, err := l.addJSON(manifestType, map[string]any{
			"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []descriptor{l.add(layerType, compressed)},
		})
		if err != nil {
			return nil, err
		}
		manifest.Platform = map[string]string{"os": image.Platform.OS, "architecture": image.Platform.Arch}
		manifests = append(manifests, manifest)
	}
	index, err := l.addJSON(indexType, map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": manifests, "annotations": labels})
	if err != nil {
		return nil, err
	}
	index.Annotations = map[string]string{"org.opencontainers.image.ref.name": version}
	top, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": []descriptor{index}})
	if err != nil {
		return nil, err
	}
	files := append(l.files, File{Name: "index.json", Content: top}, File{Name: "oci-layout", Content: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	return Tar(files, at)
}

// runs reads how to start a container from the last stage of a Dockerfile.
func runs(dockerfile string) (map[string]any, error) {
	config := map[string]any{}
	for line := range strings.Lines(dockerfile) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "FROM":
			clear(config)
		case "ENV":
			env, _ := config["Env"].([]string)
			config["Env"] = append(env, rest)
		case "ENTRYPOINT":
			var words []string
			if err := json.Unmarshal([]byte(rest), &words); err != nil {
				return nil, fmt.Errorf("ENTRYPOINT %s: %w", rest, err)
			}
			config["Entrypoint"] = words
		case "USER", "CMD", "WORKDIR", "EXPOSE", "LABEL":
			if config["Entrypoint"] != nil || config["Env"] != nil || name != "WORKDIR" {
				return nil, fmt.Errorf("%s: not known to the release", strings.TrimSpace(line))
			}
		}
	}
	if config["Entrypoint"] == nil {
		return nil, fmt.Errorf("the Dockerfile has no ENTRYPOINT")
	}
	return config, nil
}
