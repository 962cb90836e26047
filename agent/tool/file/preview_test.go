package file_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/image/bmp"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
)

// The words of a PDF are shown page by page, with a note about unreadable parts (OSA-31).
func TestReadPDF(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/invoice.pdf")
	if err != nil {
		t.Fatal(err)
	}

	good := string(text)
	empty := strings.NewReplacer("BT", "% ", "ET", "% ").Replace(good)
	dir, call := setup(t, map[string]string{"a.pdf": good, "named otherwise": good, "pictures.pdf": strings.ReplaceAll(empty, "Tj", "  "), "text.pdf": "no PDF", "cut.pdf": good[:300]})
	for name, c := range map[string]struct {
		tool string
		args map[string]any
		want string
	}{
		"all":      {"file_read", map[string]any{"path": "a.pdf"}, "1 2 <nil> false [Page 1]\nInvoice 2026-114\n\nConsulting, 8 h\t960.00\nTravel\t42.50\n\n[Page 2]\nPlease pay within 14 days.\n"},
		"the next": {"file_read", map[string]any{"path": "a.pdf", "start_page": 2}, "2 2 <nil> false [Page 2]\nPlease pay within 14 days.\n"},
		"little":   {"file_read", map[string]any{"path": "a.pdf", "max_chars": 20}, "1 1 2 true [Page 1]\nInvoice 202"},
		"alias":    {"read_file", map[string]any{"path": "named otherwise", "start_page": 2}, "2 2 <nil> false [Page 2]\nPlease pay within 14 days.\n"},
		"pictures": {"file_read", map[string]any{"path": "pictures.pdf"}, "1 2 <nil> false "},
	} {
		e, got := call(c.tool, c.args)
		if text := fmt.Sprint(got["start_page"], " ", got["end_page"], " ", got["next_page"], " ", got["truncated"], " ", got["text"]); !e.OK || text != c.want || got["kind"] != "pdf" || got["pages"] != 2.0 {
			t.Errorf("%s: %q, want %q\n%+v", name, text, c.want, e)
		}
		if name == "pictures" && !strings.Contains(fmt.Sprint(e.Warnings), "pictures of text are not read") {
			t.Errorf("%v", e.Warnings)
		}
	}

	if err := os.Truncate(filepath.Join(dir, "named otherwise"), 21<<20); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]string{"text.pdf": "is no PDF", "cut.pdf": "is cut off", "named otherwise": "more than the 20971520 bytes"} {
		if e, _ := call("file_read", map[string]any{"path": path}); e.Kind != tool.KindRejected || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %+v", path, e)
		}
	}

	for page, want := range map[int]tool.Kind{-1: tool.KindInvalidArgs, 3: tool.KindInvalidArgs} {
		if e, _ := call("file_read", map[string]any{"path": "a.pdf", "start_page": page}); e.Kind != want {
			t.Errorf("page %d: %+v", page, e)
		}
	}
}

// A BMP picture is shown as PNG, which models accept (YOA-01).
func TestReadBitmap(t *testing.T) {
	t.Parallel()
	var picture bytes.Buffer
	if err := bmp.Encode(&picture, image.NewGray(image.Rect(0, 0, 5, 4))); err != nil {
		t.Fatal(err)
	}

	_, call := setup(t, map[string]string{"a.bmp": picture.String(), "b.BMP": picture.String(), "cut.bmp": picture.String()[:30], "BM.txt": "BMW builds cars.\n"})
	for _, path := range []string{"a.bmp", "b.BMP"} {
		e, got := call("file_read", map[string]any{"path": path})
		if !e.OK || len(e.Images) != 1 || e.Images[0].Type != "image/png" || got["media_type"] != "image/png" || got["kind"] != "image" {
			t.Fatalf("%+v", e)
		}
		if head, err := png.DecodeConfig(bytes.NewReader(e.Images[0].Data)); err != nil || head.Width != 5 || head.Height != 4 {
			t.Errorf("%+v, %v", head, err)
		}
	}

	if e, _ := call("file_read", map[string]any{"path": "cut.bmp"}); e.Kind != tool.KindRejected || !strings.Contains(e.Message, "save it as PNG") {
		t.Errorf("%+v", e)
	}
	if e, got := call("file_read", map[string]any{"path": "BM.txt"}); !e.OK || got["kind"] != "file" {
		t.Errorf("a text that begins like a picture: %+v", e)
	}
}

// Without a viewer, such files are refused, but texts are read.
func TestReadWithoutViewer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.pdf": "%PDF-1.4", "a.xlsx": "PK", "a.txt": "one"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	roots, err := tool.NewRoots(dir, nil)
	if err != nil {
		t.Fatal(err)
	}

	tools, err := file.Tools(file.Options{Roots: roots})
	if err != nil {
		t.Fatal(err)
	}

	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]tool.Kind{"a.pdf": tool.KindUnavailable, "a.xlsx": tool.KindUnavailable, "a.txt": ""} {
		if e, err := r.Call(t.Context(), tool.Invocation{}, "file_read", []byte(`{"path":"`+name+`"}`)); err != nil || e.Kind != want {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}
