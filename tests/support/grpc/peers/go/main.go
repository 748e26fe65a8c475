// Command peer is grpc-go's xDS: what tests/support/grpc/peers/__init__.py describes.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
)

type orders struct {
	Serve *struct {
		Address string
		TLS     *struct{ Certificate, Key, CA string }
	}
	Target string
}

type call struct {
	Path     string
	Metadata [][2]string
	Timeout  float64
}

// plain carries messages as they are.
type plain struct{}

func (plain) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (plain) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (plain) Name() string                       { return "plain" }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(words any) {
	line, err := json.Marshal(words)
	check(err)
	fmt.Println(string(line))
}

func serve(wanted orders) {
	fallback := insecure.NewCredentials()
	if files := wanted.Serve.TLS; files != nil {
		pair, err := tls.LoadX509KeyPair(files.Certificate, files.Key)
		check(err)
		pem, err := os.ReadFile(files.CA)
		check(err)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		fallback = credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		})
	}
	creds, err := xdscreds.NewServerCredentials(xdscreds.ServerOptions{FallbackCreds: fallback})
	check(err)
	answer := func(_ any, stream grpc.ServerStream) error {
		var request []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		said := []byte("grpc-go")
		return stream.SendMsg(&said)
	}
	server, err := xds.NewGRPCServer(
		grpc.Creds(creds), grpc.UnknownServiceHandler(answer), grpc.ForceServerCodec(plain{}))
	check(err)
	listener, err := net.Listen("tcp", wanted.Serve.Address)
	check(err)
	go func() { check(server.Serve(listener)) }()
}

func send(channel *grpc.ClientConn, wanted call) {
	limit, cancel := context.WithTimeout(context.Background(), time.Duration(wanted.Timeout*float64(time.Second)))
	defer cancel()
	for _, pair := range wanted.Metadata {
		limit = metadata.AppendToOutgoingContext(limit, pair[0], pair[1])
	}
	var request, said []byte
	if err := channel.Invoke(limit, wanted.Path, &request, &said); err != nil {
		failed := status.Convert(err)
		say(map[string]any{"code": int(failed.Code()), "said": failed.Message()})
		return
	}
	say(map[string]any{"code": 0, "said": string(said)})
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	var wanted orders
	check(json.Unmarshal(lines.Bytes(), &wanted))
	if wanted.Serve != nil {
		serve(wanted)
	}
	var channel *grpc.ClientConn
	if wanted.Target != "" {
		var err error
		channel, err = grpc.NewClient(wanted.Target,
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(plain{})))
		check(err)
	}
	say("ready")
	for lines.Scan() {
		var next call
		check(json.Unmarshal(lines.Bytes(), &next))
		send(channel, next)
	}
}
