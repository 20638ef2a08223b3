package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"kagami/messages"
)

type fakeQueries struct{ readyErr error }

func (fakeQueries) Live(context.Context) error    { return nil }
func (f fakeQueries) Ready(context.Context) error { return f.readyErr }
func (fakeQueries) Query(_ context.Context, what string, args url.Values) (any, error) {
	switch what {
	case "mirrors":
		return []map[string]string{{"mirror": args.Get("mirror")}}, nil
	case "partitions":
		return nil, fmt.Errorf("%w: <script>", messages.ErrUnknownMirror)
	default:
		return nil, fmt.Errorf("%w: no query %q", messages.ErrInvalidRequest, what)
	}
}

func TestAnswers(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s, err := Start(Config{Listen: "127.0.0.1:0"}, fakeQueries{readyErr: errors.New("lag 7 on t-0")}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, tc := range []struct {
		name, path, want string
		status           int
	}{
		{name: "live", path: "/healthz", status: 200, want: "ok\n"},
		{name: "not ready says why", path: "/readyz", status: 503, want: "lag 7 on t-0"},
		{name: "query with argument", path: "/api/mirrors?mirror=m", status: 200, want: `[{"mirror":"m"}]`},
		{name: "unknown mirror", path: "/api/partitions", status: 404, want: "unknown cluster mirror"},
		{name: "unknown query", path: "/api/x", status: 400, want: `no query "x"`},
		{name: "status page escapes", path: "/", status: 200, want: "&lt;script&gt;"},
		{name: "no pprof unless asked", path: "/debug/pprof/", status: 404, want: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, err := client.Get("http://" + s.Addr() + tc.path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tc.status || !strings.Contains(string(b), tc.want) {
				t.Errorf("got %d %q, want %d with %q", resp.StatusCode, b, tc.status, tc.want)
			}
		})
	}
	for range 2 {
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
