package file_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/tool"
)

// A picture is shown next to its envelope. The model reads the envelope without the bytes, and the
// record stores them with it (YOA-01).
func TestReadPicture(t *testing.T) {
	t.Parallel()
	const png = "\x89PNG\r\n\x1a\n\x00\x00IEND"
	dir, call := setup(t, map[string]string{"a.png": png, "b.txt": "\xff\xd8\xff\xe0jpeg\xff\xd9", "c.gif": "GIF89a", "d.webp": "RIFF\x08\x00\x00\x00WEBPVP8 "})
	for name, kind := range map[string]string{"a.png": "image/png", "b.txt": "image/jpeg", "c.gif": "image/gif", "d.webp": "image/webp"} {
		e, res := call("file_read", map[string]any{"path": name})
		if !e.OK || len(e.Images) != 1 || e.Images[0].Type != kind || res["kind"] != "image" || res["media_type"] != kind {
			t.Errorf("%s: %+v", name, e)
		}
	}

	e, _ := call("file_read", map[string]any{"path": "a.png"})
	recorded, err := e.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}

	m, err := tool.ResultMessage(model.Call{ID: "x", Name: "file_read"}, recorded)
	want := `{"ok":true,"result":{"kind":"image","path":"a.png","media_type":"image/png","bytes":14},"tool":"file_read"}`
	if err != nil || m.Text != want || m.CallID != "x" || m.Role != model.RoleTool || len(m.Images) != 1 || string(m.Images[0].Data) != png {
		t.Errorf("%+v (%v) of %s", m, err, recorded)
	}

	var again tool.Envelope
	if err := json.Unmarshal(recorded, &again); err != nil || len(again.Images) != 1 || !reflect.DeepEqual(again.Images[0], e.Images[0]) {
		t.Errorf("%+v (%v)", again, err)
	}
	if err := os.Truncate(filepath.Join(dir, "a.png"), model.MaxImage+1); err != nil {
		t.Fatal(err)
	}
	if e, _ := call("file_read", map[string]any{"path": "a.png"}); e.OK || e.Kind != tool.KindRejected || !strings.Contains(e.Message, "at most 20971520") {
		t.Errorf("%+v", e)
	}
}

// A truncated picture is not shown, because a provider would refuse the whole request.
func TestReadPictureCutOff(t *testing.T) {
	t.Parallel()
	_, call := setup(t, map[string]string{"a.png": "\x89PNG\r\n\x1a\n\x00\x00", "b.jpg": "\xff\xd8\xff\xe0jpeg", "c.webp": "RIFF\x09\x00\x00\x00WEBPVP8 "})
	for _, name := range []string{"a.png", "b.jpg", "c.webp"} {
		if e, _ := call("file_read", map[string]any{"path": name}); e.OK || e.Kind != tool.KindRejected || !strings.Contains(e.Message, "is cut off") || len(e.Images) > 0 {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// Results that only look like pictures stay unchanged.
func TestAnswerWithoutPictures(t *testing.T) {
	t.Parallel()
	for _, recorded := range []string{`{"ok":true,"result":{"images":[1]}}`, `{"ok":true,"result":{"text":"\"images\":"}}`} {
		m, err := tool.ResultMessage(model.Call{ID: "x"}, json.RawMessage(recorded))
		if err != nil || m.Text != recorded || len(m.Images) != 0 {
			t.Errorf("%+v (%v)", m, err)
		}
	}
	if _, err := tool.ResultMessage(model.Call{Name: "file_read"}, json.RawMessage(`{"images":`)); err == nil || !strings.Contains(err.Error(), "file_read") {
		t.Errorf("%v", err)
	}
}
