package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/litestream"
	"github.com/superfly/ltx"

	"rouse/internal/storage/objects"
)

// Store is the storage of LTX files.
type Store = objects.Store

// Object describes an object in a Store.
type Object = objects.Object

// Client is a litestream.ReplicaClient that stores files in a Store. The name of a file is
// PREFIX/LEVEL/MIN-MAX-MILLISECONDS.ltx.
type Client struct {
	store  Store
	prefix string

	mu    sync.Mutex
	names map[string]string // names of known LTX files, by level and transactions
}

var _ litestream.ReplicaClient = (*Client)(nil)

// NewClient returns a Client that stores LTX files below a prefix of a store.
func NewClient(s Store, prefix string) *Client {
	return &Client{store: s, prefix: prefix, names: map[string]string{}}
}

// Type implements litestream.ReplicaClient.
func (c *Client) Type() string { return "rouse" }

// Init implements litestream.ReplicaClient.
func (c *Client) Init(context.Context) error { return nil }

// SetLogger implements litestream.ReplicaClient.
func (c *Client) SetLogger(*slog.Logger) {}

func (c *Client) level(level int) string { return path.Join(c.prefix, strconv.Itoa(level)) + "/" }

func (c *Client) name(level int, from, to ltx.TXID, milliseconds int64) string {
	return c.level(level) + fmt.Sprintf("%s-%s-%d.ltx", from, to, milliseconds)
}

func span(level int, from, to ltx.TXID) string {
	return fmt.Sprintf("%d/%s-%s-", level, from, to)
}

// LTXFiles implements litestream.ReplicaClient.
func (c *Client) LTXFiles(ctx context.Context, level int, seek ltx.TXID, _ bool) (ltx.FileIterator, error) {
	prefix, after := c.level(level), ""
	if seek > 0 {
		after = prefix + seek.String() // names of this transaction are longer, so they sort after it
	}
	objects, err := c.store.List(ctx, prefix, after)
	if err != nil {
		return nil, err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*ltx.FileInfo
	for _, o := range objects {
		info, ok := parseName(strings.TrimPrefix(o.Name, prefix))
		if !ok {
			continue
		}
		info.Level, info.Size = level, o.Bytes
		c.names[span(level, info.MinTXID, info.MaxTXID)] = o.Name
		out = append(out, info)
	}
	return ltx.NewFileInfoSliceIterator(out), nil
}

func parseName(name string) (*ltx.FileInfo, bool) {
	base, ok := strings.CutSuffix(name, ".ltx")
	parts := strings.Split(base, "-")
	if !ok || len(parts) != 3 {
		return nil, false
	}
	from, err := ltx.ParseTXID(parts[0])
	to, err2 := ltx.ParseTXID(parts[1])
	at, err3 := strconv.ParseInt(parts[2], 10, 64)
	if errors.Join(err, err2, err3) != nil {
		return nil, false
	}
	return &ltx.FileInfo{MinTXID: from, MaxTXID: to, CreatedAt: time.UnixMilli(at).UTC()}, true
}

// VersionOf parses the file name of a single transaction. It returns false if the name is invalid.
func VersionOf(name string) (Version, bool) {
	info, ok := parseName(name)
	if !ok {
		return Version{}, false
	}
	return Version{info.MaxTXID, info.CreatedAt}, true
}

// OpenLTXFile implements litestream.ReplicaClient.
func (c *Client) OpenLTXFile(ctx context.Context, level int, from, to ltx.TXID, offset, size int64) (io.ReadCloser, error) {
	name, err := c.find(ctx, level, from, to)
	if err != nil {
		return nil, err
	}
	return c.store.Get(ctx, name, offset, size)
}

func (c *Client) find(ctx context.Context, level int, from, to ltx.TXID) (string, error) {
	key := span(level, from, to)
	c.mu.Lock()
	name, ok := c.names[key]
	c.mu.Unlock()
	if ok {
		return name, nil
	}
	found, err := c.store.List(ctx, path.Join(c.prefix, key), "")
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	return found[0].Name, nil
}

// WriteLTXFile implements litestream.ReplicaClient.
func (c *Client) WriteLTXFile(ctx context.Context, level int, from, to ltx.TXID, r io.Reader) (*ltx.FileInfo, error) {
	header, r, err := ltx.PeekHeader(r)
	if err != nil {
		return nil, err
	}
	body, size, done, err := spool(r)
	if err != nil {
		return nil, err
	}
	defer done()

	name := c.name(level, from, to, header.Timestamp)
	if err := c.store.Put(ctx, name, body, size); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[span(level, from, to)] = name
	return &ltx.FileInfo{Level: level, MinTXID: from, MaxTXID: to, Size: size, CreatedAt: time.UnixMilli(header.Timestamp).UTC()}, nil
}

// maxSpool is the maximum part of an LTX file held in memory, in bytes. Larger files are buffered
// in a temporary file.
const maxSpool = 4 << 20

// spool reads all of r to determine its size. It also prevents a slow store from keeping a database
// reader open.
func spool(r io.Reader) (body io.Reader, size int64, done func(), err error) {
	var head bytes.Buffer
	if _, err := io.CopyN(&head, r, maxSpool); errors.Is(err, io.EOF) {
		return bytes.NewReader(head.Bytes()), int64(head.Len()), func() {}, nil
	} else if err != nil {
		return nil, 0, nil, err
	}

	f, err := os.CreateTemp("", "rouse-replica-")
	if err != nil {
		return nil, 0, nil, err
	}
	done = func() {
		_ = f.Close() // the file is removed
		_ = os.Remove(f.Name())
	}
	size, err = io.Copy(f, io.MultiReader(&head, r))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, 0, nil, err
	}
	return f, size, done, nil
}

// DeleteLTXFiles implements litestream.ReplicaClient.
func (c *Client) DeleteLTXFiles(ctx context.Context, files []*ltx.FileInfo) error {
	var names []string
	for _, info := range files {
		names = append(names, c.name(info.Level, info.MinTXID, info.MaxTXID, info.CreatedAt.UnixMilli()))
	}
	return c.store.Delete(ctx, names...)
}

// DeleteAll implements litestream.ReplicaClient.
func (c *Client) DeleteAll(ctx context.Context) error {
	all, err := c.store.List(ctx, c.prefix+"/", "")
	if err != nil {
		return err
	}
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = o.Name
	}
	return c.store.Delete(ctx, names...)
}
