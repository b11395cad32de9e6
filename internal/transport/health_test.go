package transport

import (
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	g, addr := start(t, Options{})
	h := healthpb.NewHealthClient(dial(t, addr))
	check := func(service string) string {
		resp, err := h.Check(testContext(t), &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			return status.Code(err).String()
		}
		return resp.Status.String()
	}
	steps := []struct {
		do   func()
		want map[string]string
	}{
		{func() {}, map[string]string{"": "NOT_SERVING", "ratelimit": "NOT_SERVING", "liveness": "SERVING", "other": "NotFound"}},
		{func() { g.SetServing(true) }, map[string]string{"": "SERVING", "ratelimit": "SERVING", "liveness": "SERVING", "other": "NotFound"}},
		{func() { g.SetServing(false) }, map[string]string{"": "NOT_SERVING", "ratelimit": "NOT_SERVING", "liveness": "SERVING", "other": "NotFound"}},
	}
	for i, s := range steps {
		s.do()
		for service, want := range s.want {
			if got := check(service); got != want {
				t.Errorf("step %d, %q: got %s, want %s", i, service, got, want)
			}
		}
	}
}

func TestHealthWatchersAreTold(t *testing.T) {
	t.Parallel()
	g, addr := start(t, Options{})
	g.SetServing(true)
	for _, service := range []string{"", "ratelimit"} {
		w, err := healthpb.NewHealthClient(dial(t, addr)).Watch(testContext(t), &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		for _, serving := range []bool{true, false, true} {
			g.SetServing(serving)
			want := healthpb.HealthCheckResponse_NOT_SERVING
			if serving {
				want = healthpb.HealthCheckResponse_SERVING
			}
			got, err := w.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if got.Status != want {
				t.Errorf("watching %q: got %v, want %v", service, got.Status, want)
			}
		}
	}
}

func TestReflection(t *testing.T) {
	t.Parallel()
	ask := func(o Options, req *reflectionpb.ServerReflectionRequest) (*reflectionpb.ServerReflectionResponse, error) {
		_, addr := start(t, o)
		s, err := reflectionpb.NewServerReflectionClient(dial(t, addr)).ServerReflectionInfo(testContext(t))
		if err != nil {
			return nil, err
		}
		if err := s.Send(req); err != nil && !errors.Is(err, io.EOF) { // EOF: Recv says why
			return nil, err
		}
		if err := s.CloseSend(); err != nil {
			return nil, err
		}
		return s.Recv()
	}
	list := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	if _, err := ask(Options{}, list); status.Code(err) != codes.Unimplemented {
		t.Errorf("switched off: got %v, want UNIMPLEMENTED", err)
	}
	resp, err := ask(Options{Reflection: true}, list)
	if err != nil {
		t.Fatal(err)
	}
	const name = "envoy.service.ratelimit.v3.RateLimitService"
	listed := false
	for _, s := range resp.GetListServicesResponse().GetService() {
		listed = listed || s.Name == name
	}
	if !listed {
		t.Errorf("listed: got %v, want %s among them", resp, name)
	}
	resp, err = ask(Options{Reflection: true}, &reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name + ".ShouldRateLimit"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("described: got %v, want the files that declare %s", resp, name)
	}
}
