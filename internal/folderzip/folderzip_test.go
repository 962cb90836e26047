package folderzip_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"rouse/internal/folderzip"
	"rouse/internal/text"
)

func packed(t *testing.T, files ...string) []byte {
	t.Helper()
	w := folderzip.NewWriter()
	for _, name := range files {
		if err := w.Add(name, []byte("content of "+name)); err != nil {
			t.Fatal(err)
		}
	}
	content, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// The same files make the same archive. It is listed as a tree, and untrusted names are only shown.
func TestTree(t *testing.T) {
	t.Parallel()
	content := packed(t, "a.txt", "b/c.txt", "b/d/e.txt", "b/f.txt", "../out", "x\x1b[31m\ny/z")
	if !bytes.Equal(content, packed(t, "a.txt", "b/c.txt", "b/d/e.txt", "b/f.txt", "../out", "x\x1b[31m\ny/z")) {
		t.Error("the same files make another archive")
	}

	files, more, err := folderzip.Files(content)
	if err != nil || more != 0 || len(files) != 6 || files[0] != (folderzip.File{Path: "a.txt", Size: 16}) {
		t.Fatalf("%+v %d %v", files, more, err)
	}
	var out strings.Builder
	if err := folderzip.Tree(&out, files, more, text.OneLine, text.Size); err != nil {
		t.Fatal(err)
	}
	want := "a.txt  16 B\nb/\n  c.txt  18 B\n  d/\n    e.txt  20 B\n  f.txt  18 B\n../\n  out  17 B\nx y/\n  z  21 B\n"
	if out.String() != want {
		t.Errorf("%q\nwant\n%q", out.String(), want)
	}

	if _, _, err := folderzip.Files([]byte("no archive")); err == nil {
		t.Error("what is no archive is listed")
	}
}

// At most MaxFiles files are listed, and the others are counted.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range folderzip.MaxFiles + 3 {
		names = append(names, fmt.Sprint(i))
	}
	files, more, err := folderzip.Files(packed(t, names...))
	if err != nil || more != 3 || len(files) != folderzip.MaxFiles {
		t.Errorf("%d files, %d more, %v", len(files), more, err)
	}
}

// FuzzFiles: listing arbitrary bytes ends and returns a limited result.
func FuzzFiles(f *testing.F) {
	w := folderzip.NewWriter()
	if err := w.Add("a/b", []byte("x")); err != nil {
		f.Fatal(err)
	}
	seed, err := w.Bytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte("PK\x05\x06"))
	f.Fuzz(func(t *testing.T, content []byte) {
		files, more, err := folderzip.Files(content)
		if err == nil {
			err = folderzip.Tree(&bytes.Buffer{}, files, more, text.OneLine, text.Size)
		}
		if err == nil && len(files) > folderzip.MaxFiles {
			t.Errorf("%d files", len(files))
		}
	})
}
