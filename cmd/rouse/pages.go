package main

import (
	"context"
	"net/url"
	"strconv"

	"github.com/spf13/pflag"
)

// pageSize is how much of a listing one request asks for; the API gives no more at once.
const pageSize = 1000

// pages says how much of a listing is wanted, newest first.
type pages struct {
	n      int
	before string // an id of the listing; "": from the newest on
	all    bool
}

// flags declares -n, --before and --all; what names what is listed, in the singular, and where says for which form of the
// command they are.
func (p *pages) flags(f *pflag.FlagSet, n int, what, where string) {
	f.IntVarP(&p.n, "number", "n", n, where+"how many")
	f.StringVar(&p.before, "before", "", where+"only those before the "+what+" of this `id`: the last of the page before")
	f.BoolVar(&p.all, "all", false, where+"all of them, however many")
}

// getPages asks for so much of a listing, in as many requests as that takes. id is what a listing goes on from.
func getPages[T any](ctx context.Context, s *session, path string, query url.Values, p pages, id func(T) string) ([]T, error) {
	if !p.all && p.n < 1 {
		return nil, usagef("-n %d: say how many, from 1 on, or --all", p.n)
	}

	out := []T{}
	for before := p.before; ; {
		size := pageSize
		if !p.all {
			size = min(size, p.n-len(out))
		}
		query.Set("n", strconv.Itoa(size))
		if before != "" {
			query.Set("before", before)
		}

		var page []T
		if err := s.Get(ctx, path, query, &page); err != nil {
			return nil, err
		}
		if out = append(out, page...); len(page) < size || len(out) == p.n && !p.all {
			return out, nil
		}
		before = id(page[len(page)-1])
	}
}
