package target

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/replicate/target/s3test"
	"rouse/internal/storage/objects"
)

// Invalid URLs are rejected with an explanation, and errors never contain a key.
func TestParse(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"file:///mnt/usb/rouse":                                  "",
		"s3://bucket/a/b?region=eu-1":                            "",
		"s3://bucket?endpoint=https://minio.example.net:9000":    "",
		"s3://bucket/x?endpoint=http://127.0.0.1:9000":           "",
		"s3://bucket/x?endpoint=http://minio.example.net":        "must be https",
		"s3://bucket/x?endpoint=minio:9000":                      "no address of a server",
		"s3://bucket/x?endpoint=https://h&acl=public":            "acl",
		"s3://access:hunter2@bucket/x":                           "must not have a key",
		"s3:///x":                                                "must name a bucket",
		"file://mnt/usb":                                         "absolute path",
		"file:///":                                               "absolute path",
		"/mnt/usb":                                               "scheme",
		"ftp://host/x":                                           "scheme",
		"https://bucket.s3.amazonaws.com":                        "scheme",
		"s3://bucket/x?endpoint=https://user:hunter2@host.local": "no address of a server",
		"s3://%zz:hunter2":                                       "is no URL",
	} {
		_, err := Parse(to)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", to, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the key is told: %v", to, err)
		}
	}
}

// A directory and a bucket satisfy the same contract.
func TestStores(t *testing.T) {
	t.Run("folder", func(t *testing.T) { conform(t, objects.Folder{Path: t.TempDir()}) })
	t.Run("bucket", func(t *testing.T) {
		server := s3test.Start(t, "copies")
		at := "s3://copies/some/home?region=us-east-1&endpoint=" + server.URL
		open := func(to string, k Keys) objects.Store {
			p, err := Parse(to)
			if err != nil {
				t.Fatal(err)
			}
			s, err := p.Open(k)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		key := Keys{s3test.Access, s3test.Secret}
		conform(t, open(at, key))

		for what, c := range map[string]struct {
			s    objects.Store
			want string
		}{
			"another bucket": {open(strings.Replace(at, "copies", "others", 1), key), "there is no bucket others"},
			"another key":    {open(at, Keys{"somebody", s3test.Secret}), "No user exists"}, // the wording of this server
			"a wrong secret": {open(at, Keys{s3test.Access, "hunter2hunter2"}), "refuses the key"},
		} {
			_, err := c.s.List(t.Context(), "", "")
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: listing: %v", what, err)
			}
			err = c.s.Put(t.Context(), "x", strings.NewReader("1"), 1)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: writing: %v", what, err)
			}
		}
		server.Stop()
		if err := open(at, key).Put(t.Context(), "x", strings.NewReader("1"), 1); err == nil {
			t.Error("a server that is gone took something")
		}
	})
}

func conform(t *testing.T, s objects.Store) {
	t.Helper()
	put := func(name, content string) {
		t.Helper()
		if err := s.Put(t.Context(), name, strings.NewReader(content), int64(len(content))); err != nil {
			t.Fatal(err)
		}
	}
	get := func(name string, offset, length int64) string {
		t.Helper()
		r, err := s.Get(t.Context(), name, offset, length)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	names := func(prefix, after string) string {
		t.Helper()
		all, err := s.List(t.Context(), prefix, after)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, o := range all {
			out = append(out, o.Name)
		}
		return strings.Join(out, " ")
	}

	if got := names("", ""); got != "" {
		t.Errorf("an empty place has %s", got)
	}
	put("a/1-x", "one")
	put("a/2-x", "two")
	put("a/2-x", "two again")
	put("b", "0123456789")
	large := strings.Repeat("large ", 1<<20)
	put("c", large)
	if got := get("c", 0, 0); got != large {
		t.Errorf("a large one has %d bytes", len(got))
	}
	if got := get("a/2-x", 0, 0); got != "two again" {
		t.Errorf("one that was replaced is %q", got)
	}
	if got := get("b", 2, 3) + "," + get("b", 7, 0); got != "234,789" {
		t.Errorf("parts are %q", got)
	}
	if got := names("", "") + ", " + names("a/", "") + ", " + names("a/", "a/1") + ", " + names("a/", "a/1-x") + ", " + names("a/2", "") + ", " + names("z/", ""); got != "a/1-x a/2-x b c, a/1-x a/2-x, a/1-x a/2-x, a/2-x, a/2-x, " {
		t.Errorf("listings are %s", got)
	}
	if _, err := s.Get(t.Context(), "none", 0, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
	if err := s.Put(t.Context(), "short", bytes.NewReader([]byte("123")), 5); err == nil {
		t.Error("one that was cut off was taken")
	}
	if err := s.Delete(t.Context(), "a/1-x", "none"); err != nil {
		t.Error(err)
	}
	if got := names("", ""); got != "a/2-x b c" {
		t.Errorf("after a removal there is %s", got)
	}
}

// A missing directory is not created and not treated as an empty one.
func TestFolderIsGone(t *testing.T) {
	t.Parallel()
	s := objects.Folder{Path: filepath.Join(t.TempDir(), "gone")}
	if err := s.Put(t.Context(), "x", strings.NewReader("1"), 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("writing: %v", err)
	}
	if _, err := s.List(t.Context(), "", ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("listing: %v", err)
	}
	if _, err := s.Get(t.Context(), "../x", 0, 0); err == nil {
		t.Error("it leads out")
	}
}

// A full disk on the server is reported at once and by name.
func TestBucketIsFull(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusInsufficientStorage)
		_, _ = io.WriteString(w, `<?xml version="1.0"?><Error><Code>XMinioStorageFull</Code><Message>Storage backend has reached its minimum free drive threshold.</Message></Error>`)
	}))
	defer server.Close()
	place, err := Parse("s3://copies/home?region=us-east-1&endpoint=" + server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s, err := place.Open(Keys{"a", "hunter2hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "x", strings.NewReader("1"), 1); err == nil || !strings.Contains(err.Error(), "no space left") || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

// If a server repeats the request in an error, the error's message does not contain the keys.
func TestEchoedKeys(t *testing.T) {
	t.Parallel()
	const access, secret = "ACCESS-hunter2-key", "hunter2/horse+staple"
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, "<Error><Code>"+secret+"</Code><Message>"+r.Header.Get("Authorization")+" "+url.QueryEscape(secret)+"</Message></Error>")
	}))
	defer echo.Close()
	p, err := Parse("s3://copies/some/home?region=us-east-1&endpoint=" + echo.URL)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Open(Keys{access, secret})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.List(t.Context(), "", "")
	err = errors.Join(err, s.Put(t.Context(), "x", strings.NewReader("1"), 1), s.Delete(t.Context(), "x"))
	if said := err.Error(); strings.Contains(said, "hunter2") || strings.Contains(said, "horse") || !strings.Contains(said, "[secret]") {
		t.Error(said)
	}
}
