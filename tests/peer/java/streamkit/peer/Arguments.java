package streamkit.peer;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The fields of one command, read by type. */
final class Arguments {
    private final Map<?, ?> fields;

    Arguments(Map<?, ?> fields) {
        this.fields = fields;
    }

    boolean has(String name) {
        return fields.get(name) != null;
    }

    String text(String name) {
        Object value = fields.get(name);
        if (value == null) {
            throw new IllegalArgumentException("the command lacks " + name);
        }
        return value.toString();
    }

    String text(String name, String otherwise) {
        return has(name) ? text(name) : otherwise;
    }

    long whole(String name, long otherwise) {
        return has(name) ? Long.parseLong(text(name)) : otherwise;
    }

    int integer(String name, int otherwise) {
        return (int) whole(name, otherwise);
    }

    List<String> texts(String name) {
        List<String> texts = new ArrayList<>();
        for (Object item : (List<?>) fields.get(name)) {
            texts.add(item.toString());
        }
        return texts;
    }

    List<Arguments> objects(String name) {
        List<Arguments> objects = new ArrayList<>();
        for (Object item : (List<?>) fields.get(name)) {
            objects.add(new Arguments((Map<?, ?>) item));
        }
        return objects;
    }

    Map<String, String> pairs(String name) {
        Map<String, String> pairs = new LinkedHashMap<>();
        if (has(name)) {
            ((Map<?, ?>) fields.get(name)).forEach((key, value) -> pairs.put(key.toString(), value.toString()));
        }
        return pairs;
    }
}
