import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/** Iceberg's REST catalog on a port of loopback, for who has got a token: java … IcebergRest.java PORT WAREHOUSE. */
public class IcebergRest {
  private static final String LOG_IN = "/v1/oauth/tokens";
  private static final String TOKEN = "Bearer client-credentials-token:";  // what that path gives

  public static void main(String[] arguments) throws Exception {
    Map<String, String> settings = Map.of(
        "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri", "jdbc:sqlite:" + arguments[1] + "/catalog.db",
        "jdbc.schema-version", "V1",
        "warehouse", arguments[1]);
    Catalog catalog = CatalogUtil.buildIcebergCatalog("lake", settings, new Configuration());
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    connector.setPort(Integer.parseInt(arguments[0]));
    server.addConnector(connector);
    ServletContextHandler context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new Guarded(new RESTCatalogAdapter(catalog))), "/*");
    server.setHandler(context);
    server.start();
    server.join();
  }

  /** Answers 401 to who shows no token. */
  private static class Guarded extends RESTCatalogServlet {
    Guarded(RESTCatalogAdapter adapter) {
      super(adapter);
    }

    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response)
        throws ServletException, IOException {
      String shown = request.getHeader("Authorization");
      if (request.getPathInfo().equals(LOG_IN) || (shown != null && shown.startsWith(TOKEN))) {
        super.service(request, response);
      } else {
        response.sendError(401);
      }
    }
  }
}
