package bundle

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
)

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SBOM returns a bill of materials (CycloneDX 1.6) of a binary, from what the Go linker recorded in
// it: every module, its version, its checksum as in go.sum, and the Go release. It lists what is
// linked, not everything that go.mod allows. It returns an error if the binary is for another
// platform.
func SBOM(binary []byte, p Platform, version string, at time.Time) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, fmt.Errorf("reading the modules of the binary: %w", err)
	}
	var built Platform
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS":
			built.OS = s.Value
		case "GOARCH":
			built.Arch = s.Value
		}
	}
	if built != p {
		return nil, fmt.Errorf("the binary is for %s", built)
	}
	return materials(info, binary, version, at)
}

func materials(info *debug.BuildInfo, binary []byte, version string, at time.Time) ([]byte, error) {
	sum := sha256.Sum256(binary)
	main := component{
		Type: "application", Name: info.Main.Path, Version: version,
		Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}}, PURL: purl(info.Main.Path, version),
	}
	main.Ref = main.PURL
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" {
			main.Properties = append(main.Properties, property{"flotilla:build:" + s.Key, s.Value})
		}
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	components := []component{{Type: "library", Name: "std", Version: goVersion, PURL: purl("std", goVersion), Ref: purl("std", goVersion)}}
	for _, m := range info.Deps {
		c := module(m)
		if r := m.Replace; r != nil {
			c = module(r)
			c.Properties = append(c.Properties, property{"flotilla:go:replaces", m.Path + "@" + m.Version})
		}
		components = append(components, c)
	}
	var refs []string
	for _, c := range components {
		refs = append(refs, c.Ref)
	}
	type dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	}
	type metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	content, err := json.MarshalIndent(struct {
		Format       string       `json:"bomFormat"`
		Spec         string       `json:"specVersion"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}{"CycloneDX", "1.6", 1, metadata{at.UTC().Format(time.RFC3339), main}, components, []dependency{{main.Ref, refs}}}, "", "  ")
	return append(content, '\n'), err
}

func module(m *debug.Module) component {
	c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: purl(m.Path, m.Version), Ref: purl(m.Path, m.Version)}
	if m.Sum != "" {
		// Of the module's files by name, as in go.sum, and not the hash of one file.
		c.Properties = []property{{"flotilla:go:sum", m.Sum}}
	}
	return c
}

func purl(name, version string) string {
	return "pkg:golang/" + name + "@" + url.QueryEscape(version)
}
