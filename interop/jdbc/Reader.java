package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/**
 * Reads a view with PostgreSQL's JDBC driver. Arguments: the URL, the statement, "autocommit" or "transactions".
 *
 * Each line on standard input is a number of reads. The answer is one line with a character per read: "." for rows of
 * one version, "x" for "cached plan must not change result type". Every other outcome ends the program.
 */
final class Reader {
    private static final String STALE_PLAN = "0A000";

    private Reader() {}

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection(arguments[0]);
                BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            connection.setAutoCommit(arguments[2].equals("autocommit"));
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                StringBuilder outcomes = new StringBuilder();
                for (int left = Integer.parseInt(line.trim()); left > 0; left--) {
                    outcomes.append(read(connection, arguments[1]));
                }
                System.out.println(outcomes);
            }
        }
    }

    private static char read(Connection connection, String sql) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql);
                ResultSet rows = statement.executeQuery()) {
            checkRows(rows);
        } catch (SQLException error) {
            if (!STALE_PLAN.equals(error.getSQLState())) {
                throw error;
            }
            if (!connection.getAutoCommit()) {
                connection.rollback();
            }
            return 'x';
        }
        if (!connection.getAutoCommit()) {
            connection.commit();
        }
        return '.';
    }

    private static void checkRows(ResultSet rows) throws SQLException {
        long version = -1;
        int count = 0;
        for (; rows.next(); count++) {
            long found = rows.getLong("version");
            if (count > 0 && found != version) {
                throw new IllegalStateException("a mixture of versions " + version + " and " + found);
            }
            version = found;
        }
        if (count != 40) {
            throw new IllegalStateException(count + " rows of 40");
        }
    }
}
