package transport

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// maxBody bounds the body of a /json request.
const maxBody = 1 << 20

// HTTP returns the handler of the HTTP port: /json decides a RateLimitRequest in protojson, /healthcheck and /readyz
// tell whether to send requests here; any other path is 404. Every method is taken, as the reference service does.
func HTTP(o Options) http.Handler {
	o = o.withDefaults()
	m := newMetrics(o.Registerer)
	mux := http.NewServeMux()
	mux.Handle("/json", jsonHandler{newService(o, m.http)})
	mux.HandleFunc("/healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !o.Serving() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		writeText(w, http.StatusOK, "OK")
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) { ready(w, r, o) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				m.panics.Inc()
				logPanic(o.Logger, r.URL.Path, v)
				writeText(w, http.StatusInternalServerError, "Internal Server Error\n")
			}
		}()
		mux.ServeHTTP(w, r)
	})
}

// NewHTTPServer returns a server for h whose timeouts and limits keep slow or greedy clients from holding it.
func NewHTTPServer(h http.Handler, l *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 2 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(l.Handler(), slog.LevelDebug), // tells of broken connections, which are the client's
	}
}

// ready answers 200 or 503; with ?verbose it says why.
func ready(w http.ResponseWriter, r *http.Request, o Options) {
	code, text := http.StatusOK, "ok"
	if !o.Serving() {
		code, text = http.StatusServiceUnavailable, "not serving"
	}
	if r.URL.Query().Has("verbose") {
		text += "\n"
		if o.Snapshots != nil {
			if s := o.Snapshots.Current(); s != nil {
				text += fmt.Sprintf("rules: %d domains, version %s\n", len(s.Domains()), s.Hash())
			} else {
				text += "rules: none loaded yet\n"
			}
		}
		if o.Degraded != nil {
			for _, why := range o.Degraded() {
				text += "degraded: " + why + "\n"
			}
		}
	}
	writeText(w, code, text)
}

// jsonHandler answers /json: 200 or 429 with a RateLimitResponse in protojson, 400 for anything that has no decision.
// It goes through the codec of the gRPC side, so both doors give one answer.
type jsonHandler struct{ *service }

// ServeHTTP implements http.Handler.
func (h jsonHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := newCall()
	defer c.release()
	if err := readJSON(c, http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		h.answered.count(codes.InvalidArgument)
		h.refuse(w, err)
		return
	}
	b, err := h.decide(r.Context(), c, mem.NopBufferPool{})
	if err != nil {
		h.refuse(w, err)
		return
	}
	var resp rlsv3.RateLimitResponse
	body, err := []byte(nil), proto.Unmarshal(*b, &resp)
	if err == nil {
		body, err = protojson.Marshal(&resp)
	}
	if err != nil {
		h.Logger.Error("answer of /json does not encode", "error", err)
		writeText(w, http.StatusInternalServerError, "Internal Server Error\n")
		return
	}
	header := w.Header()
	for _, f := range resp.ResponseHeadersToAdd {
		if !strings.EqualFold(f.Key, "content-type") { // it speaks of raw_body
			header.Add(f.Key, f.Value)
		}
	}
	header.Set("Content-Type", "application/json")
	if resp.OverallCode == rlsv3.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(body) // a client that went away misses its answer
}

// readJSON decodes a RateLimitRequest in protojson into c.
func readJSON(c *call, body io.Reader) error {
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if len(b) == 0 {
		return errors.New("the body is empty")
	}
	var req rlsv3.RateLimitRequest
	if err := protojson.Unmarshal(b, &req); err != nil {
		return err
	}
	if b, err = proto.Marshal(&req); err != nil {
		return err
	}
	c.reset()
	return c.decode(b)
}

// refuse answers a request that cannot be decided. The body is the reference service's; the reason, for people with curl,
// is in a header.
func (h jsonHandler) refuse(w http.ResponseWriter, err error) {
	reason := err.Error()
	if st, ok := status.FromError(err); ok {
		reason = st.Message()
	}
	w.Header().Set("Ratelimitd-Error", printable(strings.ReplaceAll(reason, "\u00a0", " "), 200)) // protojson writes such spaces
	code, text := http.StatusBadRequest, "Bad Request\n"
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		code, text = http.StatusRequestEntityTooLarge, "Request Entity Too Large\n"
	}
	writeText(w, code, text)
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}
