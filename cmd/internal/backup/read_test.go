package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// member is an entry of an archive.
type member struct {
	header  tar.Header
	content []byte
}

func file(name, content string) member {
	return member{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600}, []byte(content)}
}

// pack creates an archive with a manifest of its regular members. change can modify the manifest.
// The members in after follow the manifest.
func pack(t *testing.T, members []member, change func(*Manifest), after ...member) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.tar.gz")
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	m := Manifest{Format: format, Info: Info{Rouse: "test", At: time.Now()}}
	put := func(f member) {
		f.header.Size = int64(len(f.content))
		if err := w.WriteHeader(&f.header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.content); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range members {
		put(f)
		read, err := readSummed(Entry{}, bytes.NewReader(f.content), discard)
		if err != nil {
			t.Fatal(err)
		}
		if f.header.Typeflag == tar.TypeReg {
			m.Entries = append(m.Entries, Entry{Path: f.header.Name, Bytes: read.bytes, SHA256: read.sum, Mode: 0o600})
		}
	}
	if change != nil {
		change(&m)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	put(file(manifestName, string(text)))
	for _, f := range after {
		put(f)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// An untrusted archive cannot write outside its destination, and entries that no backup contains
// are rejected.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	sound := []member{file("home/a", "1"), file("home/b/c", "2")}
	link := func(kind byte, target string) member {
		return member{tar.Header{Name: "home/l", Linkname: target, Typeflag: kind}, nil}
	}
	for name, c := range map[string]struct {
		path string
		want string
	}{
		"sound":          {pack(t, sound, nil), ""},
		"above":          {pack(t, append(sound, file("home/../../x", "3")), nil), "no path of a backup"},
		"absolute":       {pack(t, append(sound, file("/x", "3")), nil), "no path of a backup"},
		"elsewhere":      {pack(t, append(sound, file("x", "3")), nil), "no path of a backup"},
		"not clean":      {pack(t, append(sound, file("home//x", "3")), nil), "no path of a backup"},
		"symbolic link":  {pack(t, append(sound, link(tar.TypeSymlink, "/etc"), file("home/l/x", "3")), nil), "is a link"},
		"hard link":      {pack(t, append(sound, link(tar.TypeLink, "home/a")), nil), "is a link"},
		"device":         {pack(t, append(sound, link(tar.TypeChar, "")), nil), "neither a file nor a folder"},
		"pipe":           {pack(t, append(sound, link(tar.TypeFifo, "")), nil), "neither a file nor a folder"},
		"twice":          {pack(t, append(sound, file("home/a", "3")), nil), "stands twice"},
		"not in it":      {pack(t, sound, func(m *Manifest) { m.Entries = m.Entries[:1] }), "is in it, and not in its"},
		"missing":        {pack(t, sound[:1], func(m *Manifest) { m.Entries = append(m.Entries, Entry{Path: "home/z"}) }), "is missing"},
		"other content":  {pack(t, sound, func(m *Manifest) { m.Entries[0].SHA256 = strings.Repeat("0", 64) }), "is damaged"},
		"other size":     {pack(t, sound, func(m *Manifest) { m.Entries[0].Bytes = 7 }), "is damaged"},
		"same but case":  {pack(t, sound, func(m *Manifest) { m.Entries = append(m.Entries, Entry{Path: "home/A"}) }), "stands twice"},
		"mode":           {pack(t, sound, func(m *Manifest) { m.Entries[0].Mode = os.ModeSetuid | 0o755 }), "a mode that no file has"},
		"manifest above": {pack(t, sound, func(m *Manifest) { m.Entries = append(m.Entries, Entry{Path: "../x", Folder: true}) }), "no path of a backup"},
		"other format":   {pack(t, sound, func(m *Manifest) { m.Format = 9 }), "of the format 9"},
		"more behind":    {pack(t, sound, nil, file("home/d", "4")), "something follows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			into := filepath.Join(outer, "into")
			if err := os.Mkdir(into, 0o700); err != nil {
				t.Fatal(err)
			}
			_, err := unpack(t.Context(), c.path, into, Hear{})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if names, err := os.ReadDir(outer); err != nil || len(names) != 1 {
				t.Errorf("something lies beside: %v (%v)", names, err)
			}
		})
	}

	t.Run("cut off", func(t *testing.T) {
		t.Parallel()
		path := pack(t, sound, nil)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for n := range len(whole) - 8 { // the last eight bytes are a checksum that is not needed
			if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := readArchive(t.Context(), path, false, nil, discard); err == nil && n < len(whole)-40 {
				t.Fatalf("the first %d of %d bytes were taken for a backup", n, len(whole))
			}
		}
	})
}

// An archive that exceeds the compression ratio is rejected long before its end.
func TestArchiveBomb(t *testing.T) {
	t.Parallel()
	const part, parts = 16 << 20, 68 // 1,088 MiB
	var head bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "home/zeros", Typeflag: tar.TypeReg, Size: part * parts}); err != nil {
		t.Fatal(err)
	}

	// A gzip file may have several members, so the zeros are compressed only once.
	zeros := gzipped(t, make([]byte, part))
	bomb := append(gzipped(t, head.Bytes()), bytes.Repeat(zeros, parts)...)
	path := filepath.Join(t.TempDir(), "x.tar.gz")
	if err := os.WriteFile(path, append(bomb, gzipped(t, make([]byte, 1024))...), 0o600); err != nil { // end-of-archive marker
		t.Fatal(err)
	}

	if _, err := readArchive(t.Context(), path, false, nil, discard); err == nil || !strings.Contains(err.Error(), "unpacks to more") {
		t.Errorf("%v", err)
	}
}

func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A manifest from a stranger is either accepted or rejected; an accepted one contains no path
// outside the backup.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"entries":[{"path":"home/a","bytes":1,"mode":384}]}`))
	f.Add([]byte(`{"format":1,"entries":[{"path":"home/../a"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := readManifest(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, e := range m.Entries {
			if !filepath.IsLocal(filepath.FromSlash(e.Path)) || !strings.HasPrefix(e.Path, homePrefix) && !strings.HasPrefix(e.Path, configPrefix) {
				t.Errorf("%q was let in", e.Path)
			}
		}
	})
}
