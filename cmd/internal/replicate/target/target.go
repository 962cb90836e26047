// Package target opens places for data outside the home: a directory, or a bucket of an S3 server.
// They hold continuous copies and large values.
package target

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"rouse/internal/storage/objects"
)

// Target is the parsed URL of a place.
type Target struct {
	Folder string // absolute; "" for a bucket

	Bucket, Prefix   string
	Endpoint, Region string // host and port; "" for AWS
	Plain            bool   // use HTTP; allowed only for this machine
}

// Keys holds the credentials of a bucket. If they are empty, the environment (AWS_ACCESS_KEY_ID, …)
// or ~/.aws/credentials is used.
type Keys struct{ Access, Secret string }

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// Parse parses the URL of a place: file:///mnt/usb/rouse, or
// s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION.
func Parse(to string) (Target, error) {
	u, err := url.Parse(to)
	if err != nil {
		// Do not wrap err: its text contains the whole URL.
		return Target{}, errors.New("is no URL; it is like file:///mnt/usb/rouse or s3://bucket/rouse")
	}
	switch {
	case u.User != nil:
		return Target{}, errors.New("must not have a key in it: access_key and secret_key are for that, or the environment")
	case u.Fragment != "":
		return Target{}, errors.New("must not have a fragment")
	case u.Scheme == "file":
		return parseFolder(u)
	case u.Scheme == "s3":
		return parseBucket(u)
	}
	return Target{}, fmt.Errorf("has the scheme %q; it is like file:///mnt/usb/rouse or s3://bucket/rouse", u.Scheme)
}

func parseFolder(u *url.URL) (Target, error) {
	path := filepath.FromSlash(u.Path)
	if runtime.GOOS == "windows" {
		path = strings.TrimPrefix(path, `\`)
	}
	if u.Host != "" || u.Opaque != "" || u.RawQuery != "" || !filepath.IsAbs(path) || filepath.Clean(path) == filepath.Dir(path) {
		return Target{}, errors.New("must name a folder by its absolute path, with three slashes: file:///mnt/usb/rouse")
	}
	return Target{Folder: filepath.Clean(path)}, nil
}

func parseBucket(u *url.URL) (Target, error) {
	t := Target{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	if !bucketName.MatchString(t.Bucket) {
		return t, errors.New("must name a bucket, as s3://bucket/rouse")
	}
	for key, values := range u.Query() {
		if len(values) != 1 {
			return t, fmt.Errorf("has %s twice", key)
		}
		switch key {
		case "region":
			t.Region = values[0]
		case "endpoint":
			e, err := url.Parse(values[0])
			if err != nil || e.Hostname() == "" || e.Scheme != "https" && e.Scheme != "http" || strings.Trim(e.Path, "/") != "" || e.User != nil || e.RawQuery != "" {
				return t, errors.New("has an endpoint that is no address of a server, like https://minio.example.net:9000")
			}
			if t.Endpoint, t.Plain = e.Host, e.Scheme == "http"; t.Plain && !loopback(e.Hostname()) {
				return t, errors.New("has an endpoint that is http: whoever is between could read what is shipped; it must be https, or on this machine")
			}
		default:
			return t, fmt.Errorf("has %s, which it cannot have: only endpoint and region", key)
		}
	}
	return t, nil
}

// loopback reports whether a host is this machine, without a DNS lookup.
func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// String returns the place in words.
func (t Target) String() string {
	switch {
	case t.Folder != "":
		return t.Folder
	case t.Endpoint != "":
		return "s3://" + t.Bucket + "/" + t.Prefix + " at " + t.Endpoint
	}
	return "s3://" + t.Bucket + "/" + t.Prefix
}

// Open returns a store for the place. It does not connect yet.
func (t Target) Open(k Keys) (objects.Store, error) {
	if t.Folder != "" {
		return objects.Folder{Path: t.Folder}, nil
	}
	return openBucket(t, k)
}
