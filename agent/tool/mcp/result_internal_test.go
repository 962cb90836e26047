package mcp

import (
	"errors"
	"strings"
	"testing"
)

// TestSentOnce checks that data present as text and as the structured part is sent once.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		// Results in the form of the reference server and common libraries.
		`{"content":[{"type":"text","text":"{\"temperature\":36,\"conditions\":\"Light rain\",\"humidity\":82}"}],"structuredContent":{"temperature":36,"conditions":"Light rain","humidity":82}}`: `{"structured":{"conditions":"Light rain","humidity":82,"temperature":36}}`,
		`{"content":[{"type":"text","text":"{ \"a\": 1.0 }"}],"structuredContent":{"a":1}}`:                                                                                                        `{"structured":{"a":1}}`,
		`{"content":[{"type":"text","text":"three hits"}],"structuredContent":{"result":"three hits"}}`:                                                                                            `{"structured":{"result":"three hits"}}`,
		`{"content":[{"type":"text","text":"[1,2]"}],"structuredContent":{"result":[1,2]}}`:                                                                                                        `{"structured":{"result":[1,2]}}`,
		`{"content":[{"type":"text","text":"Found:"},{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}`:                                                                             `{"text":"Found:","structured":{"a":1}}`,
		`{"content":[{"type":"text","text":"{\"a\":2}"}],"structuredContent":{"a":1}}`:                                                                                                             `{"text":"{\"a\":2}","structured":{"a":1}}`,
		`{"content":[{"type":"text","text":"three hits"}],"structuredContent":{"result":"three hits","more":1}}`:                                                                                   `{"text":"three hits","structured":{"more":1,"result":"three hits"}}`,
		`{"content":[{"type":"text","text":"x"}]}`:                                                                                                                                                 `{"text":"x"}`,
		`{"content":[]}`: `{"text":""}`,
		`{"content":[{"type":"resource","resource":{"uri":"demo://1","mimeType":"text/plain","blob":"aGVsbG8="}}]}`: `{"text":"hello"}`,
	} {
		res, err := decodeResult([]byte(said))
		if err != nil {
			t.Fatal(err)
		}
		e := envelope("srv", Definition{}, res, func(s string) string { return s }, nil)
		if string(e.Result) != want || !e.OK {
			t.Errorf("%s: %s, want %s", said, e.Result, want)
		}
	}

	res, err := decodeResult([]byte(`{"isError":true,"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if e := envelope("srv", Definition{}, res, func(s string) string { return s }, nil); e.OK || e.Message != `{"a":1}` {
		t.Errorf("a failure: %+v", e)
	}
}

// TestFileNames checks that content of a server gets a name that is safe in a path.
func TestFileNames(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{
		"file:///reports/May%202026.pdf": "May_2026.pdf", "demo://resource/session/a.gz": "a.gz", "demo://resource/1": "1.pdf", "": "file.pdf", "../../.ssh/id": "id.pdf", "x:.env": "env.pdf",
		"x://h/..": "file.pdf", `x://h/a\..\b`: "a_.._b", "x://h/-rf": "rf.pdf", "x://h/\x00\x1b[2J": "file.pdf", "%": "file.pdf", "x://h/" + strings.Repeat("ü", 200) + ".pdf": strings.Repeat("ü", 48) + ".pdf",
	} {
		if got := fileName(uri, "application/pdf; v=2"); got != want {
			t.Errorf("%q: %q, want %q", uri, got, want)
		}
	}
	if got := fileName("", "x/y"); got != "file.bin" {
		t.Error(got)
	}
}

// TestFilesLeftOut checks that content that cannot be kept is named with the reason.
func TestFilesLeftOut(t *testing.T) {
	t.Parallel()
	one := `{"type":"audio","mimeType":"audio/wav","data":"bGE="}`
	res, err := decodeResult([]byte(`{"content":[` + strings.Repeat(one+",", maxFiles) + one + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	same := func(s string) string { return s }
	e := envelope("srv", Definition{}, res, same, func(int, string, string, []byte) (string, error) { return "/x", nil })
	if len(e.Warnings) != 1 || e.Warnings[0] != "file.wav (audio/wav, 2 B) was left out: a result has at most 20 files" {
		t.Errorf("%q", e.Warnings)
	}
	e = envelope("srv", Definition{}, res, same, func(int, string, string, []byte) (string, error) { return "", errors.New("the disk is full") })
	if len(e.Warnings) != 20 || !strings.HasSuffix(e.Warnings[0], "was left out: the disk is full") {
		t.Errorf("%q", e.Warnings)
	}
}
