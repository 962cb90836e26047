//go:build unix

package file_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rouse/agent/tool"
)

// For every kind of path, the call returns at once with the right error and changes no file.
func TestOddFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Skip(err) // the path is too long for a socket
	}

	t.Cleanup(func() { socket.Close() })
	long := strings.Repeat("n", 300)
	if err := errors.Join(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600), syscall.Mkfifo(filepath.Join(dir, "pipe.pdf"), 0o600), os.Symlink("loop", filepath.Join(dir, "loop")),
		os.Symlink("nowhere", filepath.Join(dir, "dangling")), os.WriteFile(filepath.Join(dir, "two\nlines"), []byte("needle\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "bad\xffname"), []byte("needle\n"), 0o600)); err != nil {
		t.Skip(err)
	}

	b := newBench(t, dir)
	b.grants = []tool.Grant{{Path: dir, Write: true}, {Path: "/dev"}}
	call := b.run(t)
	for path, kinds := range map[string][2]tool.Kind{ // error kinds of reading and writing
		"pipe": {tool.KindRejected, tool.KindRejected}, "pipe.pdf": {tool.KindRejected, tool.KindRejected}, "socket": {tool.KindRejected, tool.KindRejected},
		"loop": {tool.KindExecutionError, tool.KindRejected}, "dangling": {tool.KindNotFound, tool.KindRejected}, "/dev/zero": {tool.KindRejected, tool.KindInvalidArgs},
		long: {tool.KindExecutionError, tool.KindExecutionError}, "nul\x00": {tool.KindInvalidArgs, tool.KindInvalidArgs},
	} {
		for name, c := range map[string]struct {
			args map[string]any
			kind tool.Kind
		}{
			"file_read":      {map[string]any{"path": path}, kinds[0]},
			"read_file":      {map[string]any{"path": path}, kinds[0]},
			"share_artifact": {map[string]any{"path": path}, kinds[0]},
			"file_search":    {map[string]any{"pattern": "needle", "path": path}, kinds[0]},
			"file_write":     {map[string]any{"path": path, "content": "x"}, kinds[1]},
			"file_edit":      {map[string]any{"path": path, "old_string": "a", "new_string": "b"}, kinds[1]},
		} {
			switch {
			case name == "share_artifact" && path == long:
				c.kind = tool.KindInvalidArgs // also the name of the artifact
			case name == "share_artifact" && c.kind == tool.KindNotFound:
				c.kind = tool.KindExecutionError // OSA-19
			}
			if e, _ := call(name, c.args); e.OK || e.Kind != c.kind || e.Message == "" || len(e.Message) > 2000 {
				t.Errorf("%s of %q: %+v, want %s", name, path, e, c.kind)
			}
		}
	}

	if e, got := call("file_read", map[string]any{"path": "two\nlines"}); !e.OK || got["text"] != "     1|needle\n" {
		t.Errorf("%+v", e)
	}
	if e, got := call("search", map[string]any{"pattern": "needle"}); !e.OK || got["matches"] != 2.0 || !strings.Contains(got["text"].(string), `"two\nlines":1:needle`) {
		t.Errorf("%+v %v", e, got)
	}
	if e, got := call("file_read", map[string]any{"path": "."}); !e.OK || got["entry_count"] != 7.0 {
		t.Errorf("%+v %v", e, got)
	}
}
