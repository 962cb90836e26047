package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"rouse/agent/redact"
	"rouse/internal/storage/objects"
)

const (
	partSize = 16 << 20 // bytes of a part of a large object
	// A request fails after the time answers plus the time its body takes at the rate slowest.
	answers   = 30 * time.Second
	slowest   = 64 << 10 // bytes per second
	maxListed = 1000     // objects removed with one request
)

// bucket is an objects.Store in an S3 bucket, below a prefix.
type bucket struct {
	t Target
	c *minio.Client
}

func openBucket(t Target, k Keys) (objects.Store, error) {
	endpoint := t.Endpoint
	if endpoint == "" {
		endpoint = "s3.amazonaws.com"
	}
	keys := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}})
	if k.Access != "" {
		keys = credentials.NewStaticV4(k.Access, k.Secret, "")
	}
	c, err := minio.New(endpoint, &minio.Options{Creds: keys, Secure: !t.Plain, Region: t.Region, MaxRetries: 2})
	if err != nil {
		return nil, fmt.Errorf("%s cannot be asked: %w", t, err)
	}
	return &bucket{t, c}, nil
}

func (b *bucket) key(name string) string { return path.Join(b.t.Prefix, name) }

// Put implements objects.Store.
func (b *bucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, answers+time.Duration(size/slowest)*time.Second)
	defer cancel()
	_, err := b.c.PutObject(ctx, b.t.Bucket, b.key(name), r, size, minio.PutObjectOptions{PartSize: partSize, ContentType: "application/octet-stream"})
	return b.explain(err)
}

// Get implements objects.Store.
func (b *bucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	var o minio.GetObjectOptions
	if offset > 0 || length > 0 {
		end := int64(0)
		if length > 0 {
			end = offset + length - 1
		}
		if err := o.SetRange(offset, end); err != nil {
			return nil, err
		}
	}
	core := minio.Core{Client: b.c}
	body, _, _, err := core.GetObject(ctx, b.t.Bucket, b.key(name), o)
	if err != nil {
		return nil, b.explain(err)
	}
	return body, nil
}

// List implements objects.Store.
func (b *bucket) List(ctx context.Context, prefix, after string) ([]objects.Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := minio.ListObjectsOptions{Prefix: strings.TrimPrefix(b.t.Prefix+"/"+prefix, "/"), Recursive: true}
	if after != "" {
		o.StartAfter = b.key(after)
	}
	var out []objects.Object
	for object := range b.c.ListObjects(ctx, b.t.Bucket, o) {
		if object.Err != nil {
			return nil, b.explain(object.Err)
		}
		name := object.Key
		if b.t.Prefix != "" {
			name = strings.TrimPrefix(name, b.t.Prefix+"/")
		}
		if name > after {
			out = append(out, objects.Object{Name: name, Bytes: object.Size})
		}
	}
	return out, b.explain(context.Cause(ctx))
}

// Delete implements objects.Store.
func (b *bucket) Delete(ctx context.Context, names ...string) error {
	for len(names) > 0 {
		n := min(len(names), maxListed)
		objects := make(chan minio.ObjectInfo, n)
		for _, name := range names[:n] {
			objects <- minio.ObjectInfo{Key: b.key(name)}
		}
		close(objects)
		names = names[n:]
		var errs []error
		for failed := range b.c.RemoveObjects(ctx, b.t.Bucket, objects, minio.RemoveObjectsOptions{}) {
			errs = append(errs, b.explain(failed.Err))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// explain turns a server's error into a message for the owner. It removes the keys, because a
// server may repeat them.
func (b *bucket) explain(err error) error {
	if err == nil {
		return nil
	}
	answer := minio.ToErrorResponse(err)
	if keys, e := b.c.GetCreds(); e == nil {
		hide := redact.New([]string{keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken})
		answer.Code, err = hide.Replace(answer.Code), &redactedError{hide.Replace(err.Error()), err}
	}
	switch answer.Code {
	case minio.NoSuchKey:
		return fs.ErrNotExist
	case minio.NoSuchBucket:
		return fmt.Errorf("there is no bucket %s at %s; make it, or name another", b.t.Bucket, b.c.EndpointURL().Host)
	case minio.AccessDenied:
		return fmt.Errorf("the server refuses %s: the key may not read, list, write and delete there: %w", b.t, err)
	}
	if answer.StatusCode == http.StatusInsufficientStorage {
		return fmt.Errorf("the server has no space left for %s (%s)", b.t, answer.Code)
	}
	if answer.StatusCode == 401 || answer.StatusCode == 403 {
		return fmt.Errorf("the server refuses the key for %s; look at access_key and secret_key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (%s)", b.t, answer.Code)
	}
	return fmt.Errorf("%s: %w", b.t, err)
}

// redactedError is an error with the keys removed from its message.
type redactedError struct {
	message string
	err     error
}

func (e *redactedError) Error() string { return e.message }
func (e *redactedError) Unwrap() error { return e.err }
